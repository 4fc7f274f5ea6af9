"""Loading with the mtl4 quantizer where checkpoint and model differ, are damaged or are large."""

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
    kept,
    load,
    logits,
    packed_names,
    quantized,
    same_state,
    transformers,
)
from safetensors.torch import load_file, save_file
from torch import nn

from torch_mtl4 import Mtl4Config

__all__ = ["checkpoint"]


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


LOADING = """
    import sys
    import threading
    import time

    import torch
    import torch_mtl4

    assert "transformers" not in sys.modules
    from transformers import LlamaForCausalLM

    def resident(kind):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith(kind))

    torch.set_num_threads(2)
    config = torch_mtl4.Mtl4Config()
    torch_mtl4.mxfp8_quantize(torch.ones(64, 64))
    peak, done, before, all_before = 0, False, resident("RssAnon"), resident("VmRSS")

    def watch():
        global peak
        while not done:
            peak = max(peak, resident("RssAnon"))  # without the pages of the mapped file
            time.sleep(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    model = LlamaForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32, quantization_config=config)
    done = True
    thread.join()
    assert type(model.model.layers[0].mlp.up_proj).__name__ == "MXFP8Linear"
    print(peak - before, resident("VmRSS") - all_before)
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
    peak, after = map(int, result.stdout.split()[-2:])
    # A quarter for the bytes, the rest for a few layers in float32 on the way; nothing of the file stays mapped.
    assert peak < 0.4 * size and after < 0.4 * size


@pytest.mark.parametrize("kind, reads", [("mamba", {"x_proj", "dt_proj", "out_proj"}), ("wavlm", {"out_proj"})])
def test_layers_whose_weight_the_model_reads_stay(kind, reads, tmp_path):
    build(kind, auto="AutoModel").save_pretrained(tmp_path)
    model = load(tmp_path, "AutoModel", quantization_config=Mtl4Config())
    assert packed_names(model)
    assert reads <= {name.rpartition(".")[2] for name, reason in kept(model).items() if "reads its weight" in reason}
    inputs = IDS if kind == "mamba" else torch.randn(1, 800)
    assert distance(model(inputs)[0], load(tmp_path, "AutoModel")(inputs)[0]) < 0.1
