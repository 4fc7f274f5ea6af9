"""Training adapters on MXFP8 layers with PEFT, and merging them."""

import pytest
import torch
from quantized_models import IDS, build, checkpoint, distance, load, logits, same_state, transformers
from torch import nn

from torch_mtl4 import Mtl4Config
from torch_mtl4.nn import MXFP8Linear

peft = pytest.importorskip("peft")

from torch_mtl4.integrations.peft import merge_and_unload  # noqa: E402

__all__ = ["checkpoint"]

TARGETS = {"llama": ["q_proj", "down_proj"], "biased": ["q_proj", "lm_head"], "gpt2": ["c_attn", "c_fc"]}


def adapted(path, kind, **kwargs):
    model = load(path, quantization_config=Mtl4Config())
    torch.manual_seed(1)
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=TARGETS[kind], r=8, **kwargs))


def train(model, steps=5):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=IDS, labels=IDS).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def bytes_of(model):
    return {k: v.clone() for k, v in model.state_dict().items() if v.dtype == torch.uint8}


@pytest.mark.parametrize("kind", ["llama", "biased", "gpt2"])
def test_trains_adapters_and_leaves_the_weights(kind, checkpoint):
    model = adapted(checkpoint(kind), kind)
    before = bytes_of(model)
    assert all("lora" in name for name, p in model.named_parameters() if p.requires_grad)
    losses = train(model)
    assert losses[-1] < losses[0] - 0.02
    assert before and all(torch.equal(v, before[k]) for k, v in bytes_of(model).items())


def test_gradients_are_those_of_the_float_model(checkpoint):
    grads = []
    for dequantize in (False, True):
        model = load(checkpoint("llama"), quantization_config=Mtl4Config())
        model = model.dequantize() if dequantize else model
        torch.manual_seed(1)
        config = peft.LoraConfig(target_modules=TARGETS["llama"], r=8, init_lora_weights=False)
        model = peft.get_peft_model(model, config)
        model(input_ids=IDS, labels=IDS).loss.backward()
        grads.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert len(grads[0]) == 2 * 2 * 2
    torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradient_checkpointing(use_reentrant, checkpoint):
    grads = []
    for checkpointing in (False, True):
        model = adapted(checkpoint("llama"), "llama", init_lora_weights=False).train()
        if checkpointing:
            model.enable_input_require_grads()
            model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        model(input_ids=IDS, labels=IDS, use_cache=False).loss.backward()
        grads.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_with_float32_adapters(dtype, checkpoint):
    model = load(checkpoint("biased"), quantization_config=Mtl4Config(), dtype=dtype)
    model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=8, init_lora_weights=False))
    model(input_ids=IDS, labels=IDS).loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("kind, safe_merge", [("llama", False), ("biased", True), ("gpt2", False)])
def test_merges_into_the_bytes(kind, safe_merge, checkpoint, tmp_path):
    model = adapted(checkpoint(kind), kind)
    train(model)
    model.eval()
    out = logits(model)
    with model.disable_adapter():
        before = logits(model)
    merged = merge_and_unload(model, safe_merge=safe_merge)
    assert type(merged) is type(load(checkpoint(kind))) and not any("lora" in n for n, _ in merged.named_modules())
    assert sum(isinstance(m, MXFP8Linear) for m in merged.modules()) == len(bytes_of(merged)) / 2
    assert distance(logits(merged), out) < 0.5 * distance(before, out)
    merged.save_pretrained(tmp_path)
    assert same_state(load(tmp_path), merged)


def test_merging_is_quantizing_the_sum(checkpoint):
    model = adapted(checkpoint("llama"), "llama", init_lora_weights=False)
    layer = model.base_model.model.model.layers[1].mlp.down_proj
    expected = MXFP8Linear.dequantize(layer.base_layer, torch.float32)
    with torch.no_grad():
        expected.weight += layer.get_delta_weight("default")
    merged = merge_and_unload(model).model.layers[1].mlp.down_proj
    expected = MXFP8Linear.from_linear(expected)
    assert torch.equal(merged.weight, expected.weight) and torch.equal(merged.weight_scale, expected.weight_scale)


def test_a_broken_adapter_leaves_the_layer_as_it_was(checkpoint):
    model = adapted(checkpoint("llama"), "llama", init_lora_weights=False)
    before = bytes_of(model)
    layer = model.base_model.model.model.layers[0].self_attn.q_proj
    layer.lora_B["default"].weight.data.fill_(float("nan"))
    with pytest.raises(ValueError, match="NaN"):
        merge_and_unload(model, safe_merge=True)
    assert isinstance(layer.get_base_layer(), MXFP8Linear)
    assert all(torch.equal(v, before[k]) for k, v in bytes_of(model).items())


def test_merging_without_us_raises_and_does_not_corrupt(checkpoint):
    model = adapted(checkpoint("llama"), "llama", init_lora_weights=False)
    before = bytes_of(model)
    with pytest.raises(RuntimeError):
        model.merge_and_unload()
    assert all(torch.equal(v, before[k]) for k, v in bytes_of(model).items())


def test_dequantize_then_merge_keeps_everything(checkpoint):
    model = load(checkpoint("llama"), quantization_config=Mtl4Config()).dequantize()
    model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=8, init_lora_weights=False))
    out = logits(model.eval())
    merged = model.merge_and_unload()
    assert type(merged.model.layers[0].self_attn.q_proj) is nn.Linear
    torch.testing.assert_close(logits(merged), out)


def test_trainer_takes_adapters_and_refuses_bare_quantized_models(checkpoint, tmp_path):
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True
    )
    data = [{"input_ids": row, "labels": row} for row in IDS]
    model = adapted(checkpoint("llama"), "llama")
    before = bytes_of(model)
    trained = transformers.Trainer(model=model, args=arguments, train_dataset=data)
    trained.train()
    assert all(torch.equal(v, before[k]) for k, v in bytes_of(model).items())
    assert any(p.abs().max() > 0 for n, p in model.named_parameters() if "lora_B" in n)
    with pytest.raises(ValueError, match="cannot perform fine-tuning on purely quantized models"):
        transformers.Trainer(
            model=load(checkpoint("llama"), quantization_config=Mtl4Config()), args=arguments, train_dataset=data
        )


def test_prepare_for_kbit_training_leaves_bytes(checkpoint):
    model = load(checkpoint("biased"), quantization_config=Mtl4Config(), dtype=torch.bfloat16)
    before = bytes_of(model)
    model = peft.prepare_model_for_kbit_training(model)
    assert all(torch.equal(v, before[k]) for k, v in bytes_of(model).items())
    assert logits(model).isfinite().all()


def test_build_is_the_same_each_time():
    assert same_state(build("llama"), build("llama"))
