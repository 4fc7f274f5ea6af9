"""Tiny random models for the tests of the quantizer, saved once each."""

import pytest
import torch

from torch_mtl4 import Mtl4Config
from torch_mtl4.nn import MXFP8Linear

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

VERSION_5 = int(transformers.__version__.split(".")[0]) >= 5
only_5 = pytest.mark.skipif(not VERSION_5, reason="transformers 4 has no such thing")
only_4 = pytest.mark.skipif(VERSION_5, reason="a limit of transformers 4")

IDS = torch.arange(12).reshape(2, 6)

DECODER = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 99,
}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 99, "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0}
SETTINGS = {
    "llama": DECODER,
    "odd": {**DECODER, "model_type": "llama", "intermediate_size": 70},
    "tied": {**DECODER, "model_type": "llama", "tie_word_embeddings": True},
    "biased": {**DECODER, "model_type": "qwen2"},
    "gpt2": GPT2,
    "bert": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 99,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    "t5": {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 1, "num_heads": 4, "vocab_size": 99},
    "mamba": {"hidden_size": 64, "state_size": 8, "num_hidden_layers": 1, "vocab_size": 99},
    "wavlm": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "conv_dim": [32, 32],
        "conv_kernel": [10, 3],
        "conv_stride": [5, 2],
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
    },
    "mixtral": {**DECODER, "num_local_experts": 4},
    "qwen3_moe": {**DECODER, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40},
    "qwen2_moe": {**DECODER, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40},
    "gpt_oss": {**DECODER, "num_local_experts": 4, "num_experts_per_tok": 2},
}


def build(kind, auto="AutoModelForCausalLM", **changes):
    """A model of that kind with random weights, the same each time."""
    settings = {**SETTINGS[kind], **changes}
    config = transformers.AutoConfig.for_model(settings.pop("model_type", kind), **settings)
    torch.manual_seed(0)
    model = getattr(transformers, auto).from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # they start as zeros, which would hide mistakes
                parameter.normal_(std=0.1)
    return model


def load(path, auto="AutoModelForCausalLM", **kwargs):
    kwargs.setdefault("dtype", torch.float32)
    return getattr(transformers, auto).from_pretrained(path, **kwargs)


def logits(model, ids=IDS):
    with torch.no_grad():
        return model(input_ids=ids).logits


def packed_names(model):
    return {name for name, module in model.named_modules() if isinstance(module, MXFP8Linear)}


def quantized(path, **kwargs):
    return load(path, quantization_config=Mtl4Config(**kwargs))


def kept(model):
    return {c.name: c.reason for c in model.hf_quantizer.conversions if not c.converted}


def same_state(a, b):
    a, b = a.state_dict(), b.state_dict()
    return list(a) == list(b) and all(torch.equal(a[key], b[key]) for key in a)


def distance(a, b):
    return ((a - b).norm() / b.norm()).item()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """Gives the directory of a float checkpoint of a kind of model."""
    saved = {}

    def get(kind):
        if kind not in saved:
            saved[kind] = str(tmp_path_factory.mktemp(kind))
            build(kind).save_pretrained(saved[kind])
        return saved[kind]

    return get
