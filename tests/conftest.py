"""For all tests: how threads wait; a tiny language model and a tiny encoder, saved as a hub would serve them."""

import os

# Before torch loads OpenMP: threads that wait should sleep. Spinning, they make the many tiny parallel regions of these
# tests up to forty times slower where the machine's cores are shared.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch

from torch_mtl4.demo import text


def pytest_addoption(parser):
    parser.addoption(
        "--device",
        choices=("cpu", "msl", "mps"),
        help="what runs the ops. tests/ops: the CPU (the default), the plans and kernels of --gpu on the MSL runner, "
        "or these by way of the MPS backend as a Mac has it, on the software Metal device of tests/host. tests/metal: "
        "the MSL runner (the default), or that device",
    )
    parser.addoption(
        "--gpu", default="g17s macos26.2 tensor_ops", help="that --device msl or mps plays (csrc/plan/device_caps.h)"
    )


@pytest.fixture(scope="session")
def software_metal_device():
    """Skips, or fails where CI needs it, if the software Metal device of tests/host cannot be built here."""
    from host.software_metal import build
    from host.wheels import absent

    if why := build.missing():
        absent(why)


WORDS = sorted({word.strip(".,;").lower() for word in text.text().split()})


@pytest.fixture(scope="session")
def tokenizer():
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["<pad>", "<unk>", *WORDS])}, unk_token="<unk>"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", unk_token="<unk>")


@pytest.fixture(scope="session")
def tiny_decoder(tmp_path_factory, tokenizer):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.2,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("decoder")
    LlamaForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory, tokenizer):
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        initializer_range=0.2,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("encoder")
    BertModel(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)
