"""Gradients through our attention against eager: biases, sinks, dropout, checkpointing, autocast."""

import copy

import pytest
import tiny_models as tiny
import torch
from tiny_models import VERSION_5, assert_as_accurate, left_padding, set_attention, token_ids

import torch_mtl4

FAMILIES = {**tiny.DECODERS, **tiny.ENCODERS, **tiny.ENCODER_DECODERS, "sam3": tiny.SAM3}
# Whose gradient only flows through what a mask, a bias or a sink adds to the logits.
ONLY_THROUGH_LOGITS = {"t5": "relative_attention_bias", "swin": "relative_position_bias", "gpt_oss": "sinks"}


def gradients(model, inputs) -> dict[str, torch.Tensor]:
    model.zero_grad()
    output = tiny.first_output(model, inputs)
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    (output * weight).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_gradients(ours, eager, truth) -> None:
    """Errors are relative to a parameter's largest gradient, but some (of key biases) are nothing but rounding."""
    assert ours.keys() == eager.keys() == truth.keys()
    largest = max(gradient.abs().max() for gradient in truth.values())
    for name, gradient in truth.items():
        scale = max(gradient.abs().max(), 1e-3 * largest)
        assert_as_accurate(*(g[name] / scale for g in (ours, eager, truth)))


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "bert", "swin", "whisper", "t5", "sam3"])
def test_gradients(name):
    family = FAMILIES[name]
    model = family.build()
    inputs = family.inputs()
    eager = gradients(set_attention(model, "eager"), inputs)
    ours = gradients(set_attention(model, "mtl4"), inputs)
    assert torch_mtl4.report(model).unfused_calls == 0
    truth = gradients(*tiny.double_of(model, inputs)) if family.in_double else eager
    assert_gradients(ours, eager, truth)
    if name in ONLY_THROUGH_LOGITS:
        marked = [g for parameter, g in ours.items() if ONLY_THROUGH_LOGITS[name] in parameter]
        assert marked and all(g.abs().max() > 0 for g in marked)


def test_gradient_checkpointing():
    model = set_attention(tiny.DECODERS["llama"].build(), "mtl4").train()
    inputs = {"input_ids": token_ids(2, 8), "attention_mask": left_padding(2, 8, 2), "use_cache": False}
    plain = gradients(model, inputs)
    model.gradient_checkpointing_enable()
    checkpointed = gradients(model, inputs)
    for name, gradient in plain.items():
        assert torch.equal(checkpointed[name], gradient), name


def test_dropout_in_training_is_eager_dropout():
    """Same generator state, same weights dropped; counted with its reason; exact also when recomputed."""
    model = tiny.DECODERS["llama"].build(attention_dropout=0.4).train()
    inputs = {"input_ids": token_ids(2, 8), "use_cache": False}

    def run(name):
        torch.manual_seed(3)
        return gradients(set_attention(model, name), inputs)

    eager, ours = run("eager"), run("mtl4")
    assert_gradients(ours, eager, eager)
    assert {m.reason for m in torch_mtl4.report(model, reset=True).attention} == {"1 calls: dropout 0.4"}
    model.gradient_checkpointing_enable()
    checkpointed = run("mtl4")
    assert all(torch.equal(checkpointed[name], gradient) for name, gradient in ours.items())
    torch_mtl4.report(model, reset=True)
    with torch.no_grad():
        model.eval()(**inputs)
    assert torch_mtl4.report(model).unfused_calls == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "vit"])
def test_autocast(name, dtype):
    """Rotary embeddings leave q and k in float32 beside a half-precision v."""
    family = FAMILIES[name]
    model = family.build()
    inputs = family.inputs()
    with torch.no_grad(), torch.autocast("cpu", dtype):
        eager, ours = (tiny.first_output(set_attention(model, n), inputs) for n in ("eager", "mtl4"))
    with torch.no_grad():
        truth = tiny.in_double(model, inputs)
    assert ours.dtype == eager.dtype
    assert_as_accurate(ours, eager, truth, precision=dtype)
    assert torch_mtl4.report(model).unfused_calls == 0


def test_autocast_training_step():
    model = set_attention(tiny.DECODERS["llama"].build(), "mtl4").train()
    ids = token_ids(2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(ids, labels=ids).loss
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_norms_kept_in_float32():
    """q and k leave their float32 norms in float32 while v is bfloat16: what adapters on half-precision models do."""
    model = tiny.DECODERS["qwen3"].build().to(torch.bfloat16)
    norms = [norm for layer in model.model.layers for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm)]
    inputs = {"input_ids": token_ids(2, 8), "use_cache": False}
    with torch.no_grad():
        truth = tiny.in_double(model, inputs)
        eager = tiny.first_output(set_attention(model, "eager"), inputs)
        for norm in norms:
            norm.float().register_forward_hook(lambda module, args, output: output.float())
        ours = tiny.first_output(set_attention(model, "mtl4"), inputs)
    assert_as_accurate(ours, eager, truth)


def test_lora():
    peft = pytest.importorskip("peft")
    base = set_attention(tiny.DECODERS["llama"].build(), "mtl4")
    model = peft.get_peft_model(
        base, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )
    ids = token_ids(2, 8)
    model(input_ids=ids, labels=ids).loss.backward()
    ours = {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}
    eager_model = copy.deepcopy(model)
    eager_model.zero_grad()
    set_attention(eager_model.base_model.model, "eager")
    eager_model(input_ids=ids, labels=ids).loss.backward()
    eager = {n: p.grad for n, p in eager_model.named_parameters() if p.requires_grad}
    assert len(ours) == 8
    assert_gradients(ours, eager, eager)


@pytest.mark.skipif(not VERSION_5, reason="head masks only exist in transformers 4, position biases only in 5")
def test_position_bias_gets_its_gradient_under_autocast():
    model = set_attention(tiny.ENCODER_DECODERS["t5"].build(), "mtl4").train()
    with torch.autocast("cpu", torch.bfloat16):
        tiny.first_output(model, tiny.ENCODER_DECODERS["t5"].inputs()).float().square().mean().backward()
    biases = [p for n, p in model.named_parameters() if "relative_attention_bias" in n]
    assert len(biases) == 2 and all(p.grad.abs().max() > 0 for p in biases)
