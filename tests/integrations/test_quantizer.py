"""The mtl4 quantizer of transformers: quantize while loading, save, reload, dequantize, and what goes wrong."""

import copy
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from quantized_models import (
    IDS,
    build,
    checkpoint,
    distance,
    load,
    logits,
    only_4,
    only_5,
    same_state,
    transformers,
)
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import torch_mtl4
from torch_mtl4 import Mtl4Config
from torch_mtl4.integrations.conv1d import MXFP8Conv1D
from torch_mtl4.nn import MXFP8Linear, dequantize_linears, quantize_linears

__all__ = ["checkpoint"]


def packed_names(model):
    return {name for name, module in model.named_modules() if isinstance(module, MXFP8Linear)}


def quantized(path, **kwargs):
    return load(path, quantization_config=Mtl4Config(**kwargs))


def kept(model):
    return {c.name: c.reason for c in model.hf_quantizer.conversions if not c.converted}


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


def test_disk_offload_reads_quantized_weights_only(checkpoint, tmp_path):
    pytest.importorskip("accelerate")
    device_map = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
    device_map |= {"model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    options = {"device_map": device_map, "offload_folder": str(tmp_path / "offload")}
    with pytest.raises(ValueError, match="expected a device_map without 'disk' while quantizing"):
        load(checkpoint("llama"), quantization_config=Mtl4Config(), **options)
    model = quantized(checkpoint("llama"))
    model.save_pretrained(tmp_path)
    again = load(tmp_path, **options)
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


def test_layers_of_other_models_that_bytes_would_break_stay(checkpoint, tmp_path):
    build("t5", auto="AutoModelForSeq2SeqLM").save_pretrained(tmp_path / "float")
    auto = "AutoModelForSeq2SeqLM"
    model = load(tmp_path / "float", auto, quantization_config=Mtl4Config())
    assert {name.rpartition(".")[2] for name in kept(model)} == {"wo", "lm_head"}
    model.save_pretrained(tmp_path / "q")
    again = load(tmp_path / "q", auto)
    ids = {"input_ids": IDS, "decoder_input_ids": IDS[:, :3]}
    assert torch.equal(model(**ids).logits, again(**ids).logits)


def test_base_model_of_a_quantized_model_with_a_head(checkpoint, tmp_path):
    model = quantized(checkpoint("llama"), modules_to_not_convert=["lm_head", "model.layers.1.mlp"])
    model.save_pretrained(tmp_path)
    base = load(tmp_path, "AutoModel")
    assert {f"model.{name}" for name in packed_names(base)} == packed_names(model)
    assert torch.equal(base(IDS)[0], model.model(IDS)[0])


@pytest.mark.parametrize("pre_quantized", [False, True])
@pytest.mark.parametrize("skip", [None, []])
def test_new_heads_stay_float_and_are_initialized(pre_quantized, skip, checkpoint, tmp_path):
    path = tmp_path / "base"
    build("bert", auto="AutoModel").save_pretrained(path)
    auto = "AutoModelForTokenClassification"
    config = Mtl4Config(modules_to_not_convert=skip)
    if pre_quantized:
        load(path, "AutoModel", quantization_config=config).save_pretrained(tmp_path / "q")
        model = load(tmp_path / "q", auto)
    else:
        model = load(path, auto, quantization_config=config)
    assert type(model.classifier) is nn.Linear and model.classifier.weight.requires_grad
    assert model.classifier.weight.std().item() == pytest.approx(model.config.initializer_range, rel=0.5)
    assert torch.equal(model.classifier.bias, torch.zeros(2))
    assert "classifier" in kept(model) and packed_names(model)
    model.save_pretrained(tmp_path / "again")
    assert same_state(load(tmp_path / "again", auto), model)


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


@pytest.mark.parametrize("damage", ["no scale", "float weight", "bytes of a float layer"])
def test_damaged_checkpoints_are_refused(damage, checkpoint, tmp_path):
    quantized(checkpoint("llama")).save_pretrained(tmp_path)
    file, name = tmp_path / "model.safetensors", "model.layers.0.mlp.up_proj.weight"
    state = load_file(file)
    if damage == "no scale":
        del state[f"{name}_scale"]
    elif damage == "float weight":
        state[name] = state[name].float()
    else:
        state["lm_head.weight"] = state["lm_head.weight"].to(torch.uint8)
    save_file(state, file, metadata={"format": "pt"})
    if damage == "bytes of a float layer":
        with pytest.raises(Exception):  # noqa: B017 - torch's or transformers', but not garbage
            logits(load(tmp_path))
        return
    with pytest.raises(Exception, match=r"expected .*weight"):
        load(tmp_path)


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


LOADING = """
    import sys
    import threading
    import time

    import torch
    import torch_mtl4

    assert "transformers" not in sys.modules
    from transformers import LlamaForCausalLM

    def anonymous():  # without the pages of the mapped file
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

    torch.set_num_threads(2)
    config = torch_mtl4.Mtl4Config()
    torch_mtl4.mxfp8_quantize(torch.ones(64, 64))
    peak, done, before = 0, False, anonymous()

    def watch():
        global peak
        while not done:
            peak = max(peak, anonymous())
            time.sleep(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    model = LlamaForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32, quantization_config=config)
    done = True
    thread.join()
    assert type(model.model.layers[0].mlp.up_proj).__name__ == "MXFP8Linear"
    print("peak", peak - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of the process from /proc")
def test_a_fresh_process_never_holds_the_float_model(tmp_path):
    config = transformers.LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=6, num_attention_heads=16, vocab_size=512
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model = model.to_empty(device="cpu")
    for parameter in model.parameters():
        parameter.data.uniform_(-1, 1)
    size = sum(p.numel() * 4 for p in model.parameters())
    assert size > 250e6
    model.save_pretrained(tmp_path, max_shard_size="100MB")
    del model
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(LOADING), str(tmp_path)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    # A quarter for the bytes, and a few layers in float32 on the way.
    assert int(result.stdout.split()[-1]) < 0.5 * size
