"""Stacked and listed experts in MXFP8: their numbers, their layout on disk, and those that are only reported."""

import copy
import pickle

import pytest
import torch
from quantized_models import (
    IDS,
    VERSION_5,
    build,
    checkpoint,
    distance,
    load,
    logits,
    only_5,
    same_state,
)
from safetensors.torch import load_file
from torch import nn

import torch_mtl4
from torch_mtl4 import Mtl4Config
from torch_mtl4.integrations.experts import MXFP8Experts
from torch_mtl4.nn import MXFP8Linear, dequantize_linears, quantize_linears

__all__ = ["checkpoint"]

KINDS = ["mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss"]


def stacked(model):
    return [module for module in model.modules() if isinstance(module, MXFP8Experts)]


def routed(tokens=9, hidden=64, experts=4, top_k=2, **kwargs):
    g = torch.Generator().manual_seed(3)
    index = torch.rand(tokens, experts, generator=g).topk(top_k).indices
    return torch.randn(tokens, hidden, generator=g, **kwargs), index, torch.rand(tokens, top_k, generator=g, **kwargs)


def gpt_oss_experts():
    return build("gpt_oss").model.layers[0].mlp.experts


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_float_model_with_the_same_weights(kind, checkpoint):
    model = load(checkpoint(kind), quantization_config=Mtl4Config())
    assert bool(stacked(model)) == (VERSION_5 or kind == "gpt_oss")
    out, floats = logits(model), copy.deepcopy(model)
    dequantize_linears(floats)
    torch.testing.assert_close(out, logits(floats))
    assert 0 < distance(out, logits(load(checkpoint(kind)))) < 0.15
    stays = {c.name.rpartition(".")[2] for c in model.hf_quantizer.conversions if not c.converted}
    assert stays <= {"lm_head", "gate", "router", "shared_expert_gate"}


@pytest.mark.parametrize("kind", KINDS)
def test_saves_and_reloads(kind, checkpoint, tmp_path):
    model = load(checkpoint(kind), quantization_config=Mtl4Config())
    by_hand = load(checkpoint(kind))
    quantize_linears(by_hand)
    assert same_state(model, by_hand)
    model.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert same_state(again, model) and torch.equal(logits(again), logits(model))
    again.save_pretrained(tmp_path / "twice")
    assert sorted(load_file(tmp_path / "twice/model.safetensors")) == sorted(load_file(tmp_path / "model.safetensors"))
    assert same_state(load(tmp_path / "twice"), model)


@pytest.mark.parametrize("kind", KINDS)
def test_dequantizes(kind, checkpoint, tmp_path):
    model = load(checkpoint(kind), quantization_config=Mtl4Config())
    expected = copy.deepcopy(model)
    dequantize_linears(expected)
    model = model.dequantize()
    model.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert same_state(model, expected) and same_state(again, expected)
    assert torch.equal(logits(again), logits(model))
    assert {type(m) for m in again.modules()} == {type(m) for m in model.modules()}


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
def test_each_expert_has_its_own_weights_and_scales_on_disk(kind, checkpoint, tmp_path):
    """The layout of transformers 4, which both versions read."""
    load(checkpoint(kind), quantization_config=Mtl4Config()).save_pretrained(tmp_path)
    float_state, state = load_file(f"{checkpoint(kind)}/model.safetensors"), load_file(tmp_path / "model.safetensors")
    experts = {name for name in float_state if ".experts." in name}
    assert len(experts) == 2 * 4 * 3
    for name in experts:
        data, scale = torch_mtl4.mxfp8_quantize(float_state[name])
        assert torch.equal(state[name], data) and torch.equal(state[f"{name}_scale"], scale)
    assert not any(state[name].dtype == torch.uint8 for name in state if name.endswith(".gate.weight"))


def test_skipped_experts_stay_float(checkpoint, tmp_path):
    skip = ["lm_head", "layers.0.*experts"]
    model = load(checkpoint("mixtral"), quantization_config=Mtl4Config(modules_to_not_convert=skip))
    first, second = (nn.ModuleList([layer]) for layer in model.model.layers)
    assert all(p.dtype == torch.float32 for n, p in first.named_parameters() if "experts" in n)
    assert any(p.dtype == torch.uint8 for n, p in second.named_parameters() if "experts" in n)
    model.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert same_state(again, model) and torch.equal(logits(again), logits(model))


def test_transposed_weights_are_stored_by_output_row():
    source = gpt_oss_experts()
    module = MXFP8Experts.from_experts(source, scaling="floor")
    assert source.gate_up_proj.shape == (4, 64, 192) and module.gate_up_proj.shape == (4, 192, 64)
    assert module.gate_up_proj_scale.shape == (4, 192, 2) and module.down_proj_scale.shape == (4, 64, 3)
    data, scale = torch_mtl4.mxfp8_quantize(source.down_proj.detach().mT.contiguous(), scaling="floor")
    assert torch.equal(module.down_proj, data) and torch.equal(module.down_proj_scale, scale)
    assert module.gate_up_proj_bias is source.gate_up_proj_bias
    back = module.dequantize()
    assert type(back) is type(source) and back.gate_up_proj.shape == source.gate_up_proj.shape
    assert {k: v for k, v in vars(back).items() if k[0] != "_"} == {
        k: v for k, v in vars(source).items() if k[0] != "_"
    }


@only_5
@pytest.mark.parametrize("kind", ["mixtral", "gpt_oss"])
def test_gradients_reach_the_input_and_the_routing(kind, checkpoint):
    layer = build(kind).model.layers[0].mlp.experts
    module = MXFP8Experts.from_experts(layer)
    floats = module.dequantize()
    floats.config._experts_implementation = "eager"
    grads = []
    for each in (module, floats):
        x, index, weights = routed(requires_grad=True)
        each(x, index, weights).square().sum().backward()
        grads.append((x.grad, weights.grad))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)
    assert not any(p.requires_grad for n, p in module.named_parameters() if p.dtype == torch.uint8)


@only_5
def test_the_report_counts_the_calls_of_experts():
    model = build("mixtral")
    torch_mtl4.patch(model, attention=False, weights="mxfp8")
    for _ in range(2):
        model(torch.arange(5)[None])
    counts = {m.name: m.calls.fused for m in torch_mtl4.report(model).weights if m.module == "MXFP8Experts"}
    assert len(counts) == model.config.num_hidden_layers and set(counts.values()) == {2}


@only_5
def test_experts_that_live_elsewhere_add_nothing():
    module = MXFP8Experts.from_experts(build("mixtral").model.layers[0].mlp.experts)
    x, index, weights = routed()
    out = module(x, index, weights)
    elsewhere = index.clone()
    elsewhere[:, 1] = 4
    kept_weights = weights.clone()
    kept_weights[:, 1] = 0
    torch.testing.assert_close(module(x, elsewhere, weights), module(x, index, kept_weights))
    assert not torch.equal(module(x, elsewhere, weights), out)
    assert torch.equal(module(x[:0], index[:0], weights[:0]), x[:0])


def test_survives_casts_and_copies():
    module = MXFP8Experts.from_experts(gpt_oss_experts())
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert all(torch.equal(v, twin.state_dict()[k]) for k, v in module.state_dict().items())
        assert twin.limit == module.limit and twin.scaling == "rceil"
    bytes_before = module.gate_up_proj.clone()
    module = module.to(torch.bfloat16)
    assert torch.equal(module.gate_up_proj, bytes_before) and module.gate_up_proj_bias.dtype == torch.bfloat16
    assert module.float_dtype == module.dequantize().down_proj.dtype == torch.bfloat16
    assert "GptOssExperts" in repr(module) and "gate_up_proj=[4, 192, 64]" in repr(module)
    with pytest.raises(RuntimeError, match=r"expected down_proj uint8 \[4, 64, 96\], got torch.float32"):
        module.load_state_dict(gpt_oss_experts().state_dict())


def test_generates_with_a_static_cache(checkpoint):
    model = load(checkpoint("mixtral"), quantization_config=Mtl4Config())
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(IDS, cache_implementation="static", **options), model.generate(IDS, **options))


def test_other_layouts_are_reported_and_left():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.w1 = nn.Parameter(torch.randn(4, 96, 64))

    model = nn.ModuleDict({"experts": Experts(), "proj": nn.Linear(64, 64)})
    found = {c.name: c.reason for c in quantize_linears(model)}
    assert found == {"experts": "holds stacked weights of an unknown layout: w1 [4, 96, 64]", "proj": None}
    assert type(model["proj"]) is MXFP8Linear and model["experts"].w1.dtype == torch.float32
    with pytest.raises(TypeError, match="expected source with stacked experts, got Experts"):
        MXFP8Experts.from_experts(model["experts"])
