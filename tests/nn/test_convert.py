"""quantize_linears and dequantize_linears: what is converted, what stays, and why."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from torch_mtl4.nn import MXFP8Linear, dequantize_linears, quantize_linears


class Router(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, self.weight).softmax(-1)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim, bias=False)
        self.gate = Router(dim, 4, bias=False)

    def forward(self, x):
        return self.down(self.up(x).relu()) + self.gate(x).sum(-1, keepdim=True)


class Model(nn.Module):
    def __init__(self, dim=40, vocabulary=50):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(Block(dim) for _ in range(2))
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def reasons(conversions):
    return {c.name: c.reason for c in conversions}


IDS = torch.arange(12).reshape(2, 6)


def test_converts_linears_and_says_why_others_stay():
    model = Model()
    found = reasons(quantize_linears(model))
    assert found == {
        "layers.0.up": None,
        "layers.0.down": None,
        "layers.0.gate": "a subclass of nn.Linear may compute something else",
        "layers.1.up": None,
        "layers.1.down": None,
        "layers.1.gate": "a subclass of nn.Linear may compute something else",
        "head": "its weight is shared with embed",
    }
    assert type(model.layers[0].up) is MXFP8Linear and type(model.layers[0].gate) is Router
    assert model.head.weight is model.embed.weight and model.head.weight.dtype == torch.float32
    assert model(IDS).isfinite().all()


def test_dequantizing_computes_with_the_same_weights():
    model = Model()
    quantize_linears(model)
    out = model(IDS)
    names = dequantize_linears(model)
    assert names == ["layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down"]
    assert type(model.layers[1].down) is nn.Linear
    torch.testing.assert_close(model(IDS), out)


@pytest.mark.parametrize(
    "skip, kept",
    [
        ([], set()),
        (["layers.0"], {"layers.0.up", "layers.0.down"}),
        (["down"], {"layers.0.down", "layers.1.down"}),
        ([r"layers\.\d+\.up"], {"layers.0.up", "layers.1.up"}),
        (["1.up", "layers.0.down"], {"layers.1.up", "layers.0.down"}),
    ],
)
def test_skip_matches_whole_components(skip, kept):
    model = Model()
    found = reasons(quantize_linears(model, skip=skip))
    plain = {name for name, module in model.named_modules() if type(module) is nn.Linear} - {"head"}
    assert plain == kept == {name for name, reason in found.items() if reason and "skip" in reason}


def test_a_skip_that_matches_nothing_is_an_error():
    model = Model()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="expected skip to name modules of the model, got 'dow'"):
        quantize_linears(model, skip=["down", "dow"])
    with pytest.raises(ValueError, match="quantize_linears: expected scaling"):
        quantize_linears(model, scaling="nearest")
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_single_layer_is_refused():
    with pytest.raises(ValueError, match=r"expected model that contains layers, got a single Linear"):
        quantize_linears(nn.Linear(4, 4))
    with pytest.raises(ValueError, match=r"expected model that contains layers, got a single MXFP8Linear"):
        dequantize_linears(MXFP8Linear(4, 4))


def test_full_precision_weights_are_freed():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    old = [weakref.ref(layer.weight) for layer in model]
    quantize_linears(model)
    gc.collect()
    assert [ref() for ref in old] == [None, None]


def test_a_module_in_two_places_stays_one_module():
    shared = nn.Linear(32, 32)
    model = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared)})
    assert reasons(quantize_linears(model)) == {"a": None}
    assert type(model["a"]) is MXFP8Linear and model["a"] is model["b"][0]


def test_weights_that_are_computed_or_read_elsewhere_stay():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.ModuleDict({"proj": nn.Linear(32, 32)})
            self.out = nn.Linear(32, 32)
            nn.init.zeros_(self.out.weight)

        def forward(self, x):
            return self.out(x.to(self.inner.proj.weight.dtype))

    parametrizations.weight_norm(normed := nn.Linear(32, 32))
    pruned = prune.l1_unstructured(nn.Linear(32, 32), "weight", 0.5)
    double, stacked = nn.Linear(32, 32).double(), nn.Module()
    stacked.experts = nn.Parameter(torch.zeros(4, 32, 32))
    model = nn.ModuleDict(
        {
            "encoder": nn.TransformerEncoderLayer(32, 2, 64),
            "reads": Reads(),
            "normed": normed,
            "pruned": pruned,
            "float64": double,
            "stacked": stacked,
            "convolution": nn.Conv1d(32, 32, 3),
        }
    )
    assert reasons(quantize_linears(model)) == {
        "encoder.self_attn.out_proj": "a subclass of nn.Linear may compute something else",
        "encoder.linear1": "TransformerEncoderLayer reads its weight",
        "encoder.linear2": "TransformerEncoderLayer reads its weight",
        "reads.inner.proj": "Reads reads its weight",
        "reads.out": None,
        "normed": "a subclass of nn.Linear may compute something else",
        "pruned": "its weight is computed from other parameters",
        "float64": "its weight is torch.float64",
        "stacked": "holds stacked weights of an unknown layout: experts [4, 32, 32]",
    }


def test_converting_twice_changes_nothing():
    model = Model()
    quantize_linears(model)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    assert all(reason is not None for reason in reasons(quantize_linears(model)).values())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_bf16_cast_deepcopy_and_save_after_conversion(tmp_path):
    model = Model()
    quantize_linears(model, skip=["layers.1.up"])
    bytes_before = model.layers[0].up.weight.clone()
    model = copy.deepcopy(model).to(torch.bfloat16)
    assert torch.equal(model.layers[0].up.weight, bytes_before)
    torch.save(model, tmp_path / "m.pt")
    twin = torch.load(tmp_path / "m.pt", weights_only=False)
    assert torch.equal(twin(IDS), model(IDS))
