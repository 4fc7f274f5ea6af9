"""The mtl4 quantizer of transformers: quantize while loading, save, reload, dequantize, and what goes wrong."""

import copy
import json

import pytest
import torch
from quantized_models import (
    IDS,
    build,
    checkpoint,
    distance,
    kept,
    load,
    logits,
    only_4,
    only_5,
    packed_names,
    quantized,
    same_state,
    transformers,
)
from safetensors import safe_open
from torch import nn

import torch_mtl4
from torch_mtl4 import Mtl4Config
from torch_mtl4.integrations.conv1d import MXFP8Conv1D
from torch_mtl4.nn import dequantize_linears, quantize_linears

__all__ = ["checkpoint"]


@pytest.mark.parametrize("kind", ["llama", "odd", "tied", "biased", "gpt2"])
def test_quantizes_saves_and_reloads(kind, checkpoint, tmp_path):
    model = quantized(checkpoint(kind))
    by_hand = load(checkpoint(kind))
    quantize_linears(by_hand)
    assert same_state(model, by_hand)
    out = logits(model)
    assert torch.equal(out, logits(by_hand))
    assert 0 < distance(out, logits(load(checkpoint(kind)))) < 0.1
    assert set(kept(model)) == {"lm_head"}
    model.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert same_state(model, again) and torch.equal(logits(again), out)
    assert packed_names(again) == packed_names(model) and set(kept(again)) == {"lm_head"}
    assert again.config.quantization_config.to_dict() == model.config.quantization_config.to_dict()


def test_the_file_has_the_layout_of_the_modules(checkpoint, tmp_path):
    model = quantized(checkpoint("odd"), scaling="floor")
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert config == {
        "quant_method": "mtl4",
        "format": "mxfp8",
        "scaling": "floor",
        "modules_to_not_convert": ["lm_head"],
    }
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        shapes = {key: (file.get_slice(key).get_dtype(), file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    assert shapes["model.layers.0.mlp.down_proj.weight"] == ("U8", [64, 70])
    assert shapes["model.layers.0.mlp.down_proj.weight_scale"] == ("U8", [64, 3])
    assert shapes["lm_head.weight"][0] == "F32"
    assert load(tmp_path).model.layers[0].mlp.down_proj.scaling == "floor"


def test_sharded_checkpoints(checkpoint, tmp_path):
    model = quantized(checkpoint("llama"))
    model.save_pretrained(tmp_path / "q", max_shard_size="40KB")
    assert len(list((tmp_path / "q").glob("*.safetensors"))) > 2
    assert same_state(load(tmp_path / "q"), model)
    load(checkpoint("llama")).save_pretrained(tmp_path / "float", max_shard_size="40KB")
    assert same_state(quantized(tmp_path / "float"), model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, "auto"])
def test_dtypes(dtype, checkpoint, tmp_path):
    model = load(checkpoint("biased"), quantization_config=Mtl4Config(), dtype=dtype)
    dtype = torch.float32 if dtype == "auto" else dtype
    projection = model.model.layers[0].self_attn.q_proj
    assert projection.bias.dtype == projection.float_dtype == model.dtype == dtype
    by_hand = load(checkpoint("biased"), dtype=dtype)
    quantize_linears(by_hand)
    assert same_state(model, by_hand) and torch.equal(logits(model), logits(by_hand))
    model.save_pretrained(tmp_path)
    assert same_state(load(tmp_path, dtype="auto"), model)


@pytest.mark.parametrize("device_map", ["cpu", "auto", {"": "cpu"}])
def test_device_maps(device_map, checkpoint, tmp_path):
    pytest.importorskip("accelerate")
    model = load(checkpoint("tied"), quantization_config=Mtl4Config(), device_map=device_map)
    assert same_state(model, quantized(checkpoint("tied")))
    model.save_pretrained(tmp_path)
    again = load(tmp_path, device_map=device_map)
    assert torch.equal(logits(again), logits(model))


@pytest.mark.parametrize(
    "skip, expected",
    [
        ([], set()),
        (["lm_head", "layers.0"], {"lm_head", *(f"model.layers.0.{n}" for n in ("self_attn", "mlp"))}),
        (["lm_head", "down_proj"], {"lm_head", "model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj"}),
    ],
)
def test_skipped_modules_are_skipped_on_reload_too(skip, expected, checkpoint, tmp_path):
    model = quantized(checkpoint("llama"), modules_to_not_convert=skip)
    plain = {name for name, module in model.named_modules() if type(module) is nn.Linear}
    assert all(any(name.startswith(e) for e in expected) for name in plain) and bool(plain) == bool(expected)
    model.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert packed_names(again) == packed_names(model)
    assert same_state(again, model) and torch.equal(logits(again), logits(model))


@pytest.mark.parametrize("skip", [None, []])
def test_tied_embeddings_stay_tied_and_float(skip, checkpoint, tmp_path):
    model = quantized(checkpoint("tied"), modules_to_not_convert=skip)
    model.save_pretrained(tmp_path)
    for each in (model, load(tmp_path)):
        assert each.lm_head.weight is each.model.embed_tokens.weight
        assert each.lm_head.weight.dtype == torch.float32
    assert torch.equal(logits(load(tmp_path)), logits(model))


def test_dequantize_after_loading(checkpoint, tmp_path):
    model = quantized(checkpoint("gpt2"))
    assert type(model.transformer.h[0].mlp.c_fc) is MXFP8Conv1D
    out, expected = logits(model), copy.deepcopy(model)
    dequantize_linears(expected)
    model = model.dequantize()
    assert not packed_names(model) and not hasattr(model.config, "quantization_config")
    assert type(model.transformer.h[0].mlp.c_fc) is transformers.pytorch_utils.Conv1D
    assert same_state(model, expected)
    torch.testing.assert_close(logits(model), out)
    model.save_pretrained(tmp_path)
    assert same_state(load(tmp_path), model)


@only_5
def test_dequantize_while_loading(checkpoint, tmp_path):
    model = quantized(checkpoint("llama"))
    model.save_pretrained(tmp_path)
    expected = load(tmp_path).dequantize()
    plain = load(tmp_path, quantization_config=Mtl4Config(dequantize=True))
    assert same_state(plain, expected) and not hasattr(plain.config, "quantization_config")
    mapped = load(tmp_path, quantization_config=Mtl4Config(dequantize=True), device_map="auto")
    assert same_state(mapped, expected)


@only_4
def test_dequantize_while_loading_is_refused_aloud(checkpoint, tmp_path):
    quantized(checkpoint("llama")).save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="The `quantization_config` from the model will be used"):
        assert packed_names(load(tmp_path, quantization_config=Mtl4Config(dequantize=True)))


def test_dequantize_needs_a_quantized_checkpoint(checkpoint):
    with pytest.raises(ValueError, match="expected dequantize=True with a quantized checkpoint, got a float one"):
        quantized(checkpoint("llama"), dequantize=True)


def test_casts_copies_and_torch_save(checkpoint, tmp_path):
    model = quantized(checkpoint("biased"))
    bytes_before = {k: v.clone() for k, v in model.state_dict().items() if v.dtype == torch.uint8}
    for cast in (copy.deepcopy(model).to(torch.bfloat16), copy.deepcopy(model).to("cpu", torch.float16)):
        state = cast.state_dict()
        assert all(torch.equal(state[key], value) for key, value in bytes_before.items())
        assert logits(cast).isfinite().all() and logits(cast).dtype == cast.dtype
    torch.save(model, tmp_path / "m.pt")
    assert torch.equal(logits(torch.load(tmp_path / "m.pt", weights_only=False)), logits(model))


def test_generates_with_dynamic_and_static_cache(checkpoint):
    model = quantized(checkpoint("llama"))
    options = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    dynamic = model.generate(IDS, **options)
    assert torch.equal(model.generate(IDS, cache_implementation="static", **options), dynamic)
    plain = model.dequantize()
    assert torch.equal(plain.generate(IDS, **options), dynamic)


def test_compiles():
    model = build("llama", num_hidden_layers=1)
    quantize_linears(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(IDS, use_cache=False).logits, logits(model))


@pytest.mark.parametrize("keep_originals", [False, True])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mixtral"])
def test_a_patched_model_can_be_saved_and_unpatched(kind, keep_originals, checkpoint, tmp_path):
    model = load(checkpoint(kind))
    torch_mtl4.patch(model, attention=False, weights="mxfp8", keep_originals=keep_originals)
    assert same_state(model, quantized(checkpoint(kind)))
    model.save_pretrained(tmp_path / "q")
    again = load(tmp_path / "q")
    assert same_state(again, model)
    assert again.config.quantization_config.to_dict() == model.config.quantization_config.to_dict()
    torch_mtl4.unpatch(model)
    assert not packed_names(model) and not getattr(model, "is_quantized", False)
    assert same_state(model, load(checkpoint(kind)) if keep_originals else again.dequantize())
    model.save_pretrained(tmp_path / "float")
    assert same_state(load(tmp_path / "float"), model)


def test_a_patched_model_can_be_dequantized(checkpoint):
    model = torch_mtl4.patch(load(checkpoint("llama")), attention=False, weights="mxfp8")
    out = logits(model)
    model = model.dequantize()
    assert not packed_names(model) and not hasattr(model.config, "quantization_config")
    torch.testing.assert_close(logits(model), out)


def test_config_checks_its_arguments():
    with pytest.raises(NotImplementedError, match="Mtl4Config: expected format 'mxfp8', got 'int4'"):
        Mtl4Config(format="int4")
    with pytest.raises(ValueError, match="Mtl4Config: expected scaling"):
        Mtl4Config(scaling="nearest")
    with pytest.raises(TypeError, match="expected modules_to_not_convert a list, got 'lm_head'"):
        Mtl4Config(modules_to_not_convert="lm_head")
    with pytest.raises(TypeError, match="expected no further arguments, got group_size"):
        Mtl4Config(group_size=16)
    config = Mtl4Config(modules_to_not_convert=("lm_head",), scaling="even")
    assert Mtl4Config.from_dict(json.loads(json.dumps(config.to_dict()))).to_dict() == config.to_dict()
    assert "even" in repr(config)


def test_unknown_names_of_the_package_are_errors():
    with pytest.raises(AttributeError, match="has no attribute 'Mtl5Config'"):
        torch_mtl4.Mtl5Config  # noqa: B018
