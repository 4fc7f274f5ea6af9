"""torch.compile and torch.export of models with our attention: one graph, same results, traces counted."""

import pytest
import tiny_models as tiny
import torch
from tiny_models import VERSION_5, assert_as_accurate, left_padding, set_attention, token_ids
from torch import nn

import torch_mtl4


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("padded", [False, True])
def test_forward_is_one_graph(padded):
    model = set_attention(tiny.DECODERS["llama"].build(), "mtl4")
    inputs = {"input_ids": token_ids(2, 8), "use_cache": False}
    if padded:
        inputs["attention_mask"] = left_padding(2, 8, 2)
    with torch.no_grad():
        expected = model(**inputs).logits
        torch_mtl4.report(model, reset=True)
        ours = torch.compile(model, fullgraph=True, backend="aot_eager")(**inputs).logits
    seen = inputs.get("attention_mask", torch.ones(2, 8)).bool()
    assert_as_accurate(ours[seen], expected[seen], expected[seen])
    attention = torch_mtl4.report(model).attention
    assert [m.calls.traced for m in attention] == [1, 1] and [m.calls.fused for m in attention] == [0, 0]


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_static_decode_is_one_graph(name):
    """And our attention makes the compiler start over no more often than eager attention does."""
    from transformers import StaticCache

    model = tiny.DECODERS[name].build()
    ids = token_ids(1, 10)
    with torch.no_grad():
        expected = set_attention(model, "eager")(ids).logits

    def decode(attention):
        set_attention(model, attention)
        cache = StaticCache(config=model.config, max_cache_len=16)
        graphs = []

        def count(graph, inputs):
            graphs.append(graph)
            return graph.forward

        def step(forward, start, stop):
            positions = torch.arange(start, stop)
            given = {"position_ids": positions[None]} if VERSION_5 else {"cache_position": positions}
            return forward(ids[:, start:stop], past_key_values=cache, use_cache=True, **given).logits

        with torch.no_grad():
            logits = [step(model, 0, 8)]
            torch.compiler.reset()
            compiled = torch.compile(model, fullgraph=True, dynamic=False, backend=count)
            logits += [step(compiled, i, i + 1) for i in (8, 9)]
        return torch.cat(logits, 1), len(graphs)

    _, eager_graphs = decode("eager")
    ours, our_graphs = decode("mtl4")
    assert_as_accurate(ours, expected, expected)
    assert our_graphs <= eager_graphs
    assert all(m.calls.traced == our_graphs for m in torch_mtl4.report(model).attention)


def test_training_step_compiles():
    model = set_attention(tiny.DECODERS["llama"].build(num_hidden_layers=1), "mtl4").train()
    ids = token_ids(2, 8)

    def gradients(forward):
        model.zero_grad()
        forward(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    expected = gradients(model)
    for a, b in zip(gradients(torch.compile(model, backend="aot_eager")), expected, strict=True):
        assert_as_accurate(a, b, b)


def test_export_with_a_dynamic_length():
    class Logits(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, input_ids):
            return self.model(input_ids=input_ids, use_cache=False).logits

    model = Logits(set_attention(tiny.DECODERS["llama"].build(), "mtl4"))
    length = torch.export.Dim("length", min=2, max=64)
    with torch.no_grad():
        program = torch.export.export(model, (token_ids(1, 8),), dynamic_shapes=({1: length},))
        assert any("flash_attention" in str(node.target) for node in program.graph.nodes)
        for size in (5, 13):
            ids = token_ids(1, size)
            assert_as_accurate(program.module()(ids), model(ids), model(ids))


def test_enabled_inside_and_around_a_compiled_function():
    module = nn.MultiheadAttention(32, 4, batch_first=True).train()
    x = torch.randn(2, 6, 32)

    def forward(x):
        return module(x, x, x, need_weights=False)[0]

    expected = forward(x)
    with torch_mtl4.enabled():
        ours = torch.compile(forward, backend="aot_eager")(x)
    assert_as_accurate(ours, expected, expected)


def test_patched_module_compiles():
    model = nn.Sequential(tiny_attention(), tiny_attention())
    x = torch.randn(2, 6, 32)
    expected = model(x)
    torch_mtl4.patch(model)
    ours = torch.compile(model, backend="aot_eager")(x)
    assert_as_accurate(ours, expected, expected)


def tiny_attention() -> nn.Module:
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(self, x):
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
            return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    return Attention()
