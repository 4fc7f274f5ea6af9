"""Quality on a real encoder, in float32: what the package changes must not show in its embeddings."""

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import torch_mtl4
from torch_mtl4.demo import metrics, weights

SENTENCES = [
    "A cat sleeps on the warm stove.",
    "The stove is warm, and a cat lies asleep on it.",
    "Interest rates rose.",
]


@pytest.fixture(scope="module")
def batch():
    pytest.importorskip(weights.ENCODER_PACKAGE)
    tokenizer = AutoTokenizer.from_pretrained(weights.packaged_encoder().path)
    return dict(tokenizer(SENTENCES, padding=True, return_tensors="pt"))


@pytest.fixture
def model(batch):
    return AutoModel.from_pretrained(weights.packaged_encoder().path, dtype=torch.float32).eval()


def test_the_weights_are_trained_ones(model, batch):
    paraphrase, unrelated = (metrics.embed(model, [batch]) @ metrics.embed(model, [batch]).T)[0, 1:]
    assert paraphrase > 0.7 and unrelated < 0.2


def test_attention_alone_changes_rounding_only(model, batch):
    before = metrics.embed(model, [batch])
    torch_mtl4.patch(model)
    torch.testing.assert_close(metrics.embed(model, [batch]), before)
    assert torch_mtl4.report(model).fused_calls == model.config.num_hidden_layers


def test_mxfp8_weights_keep_the_embeddings(model, batch):
    before = metrics.embed(model, [batch])
    size = metrics.weight_bytes(model)
    torch_mtl4.patch(model, weights="mxfp8")
    after = metrics.embed(model, [batch])
    assert (before * after).sum(1).min() > 0.99
    assert not torch.equal(before, after)
    assert metrics.weight_bytes(model) < 0.7 * size
    torch_mtl4.unpatch(model)
