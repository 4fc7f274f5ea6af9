"""torch_mtl4.export.coreai.export on models that are written in ways of their own."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as held_attention

pytest.importorskip("coreai_torch", reason="Core AI is not installed: pip install torch_mtl4[coreai]")

import torch_mtl4
from torch_mtl4.export.coreai import export
from torch_mtl4.testing import assert_equal, randn


class Function(nn.Module):
    """A function of the module and its inputs, with a buffer `total`."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("total", torch.zeros(4))

    def forward(self, *inputs):
        return self.function(self, *inputs)


def test_attention_that_a_model_imported_by_name_is_replaced(tmp_path):
    model = Function(lambda self, q, k: held_attention(q, k, k, is_causal=True, enable_gqa=True)).eval()
    report = export(model, (randn(1, 4, 6, 16), randn(1, 2, 9, 16)), tmp_path / "a.aimodel")
    assert report.kernel_calls == 1 and [row.on_kernel for row in report.modules] == [True]


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("by_name", [True, False])
def test_dropout_in_evaluation_is_refused(tmp_path, attention, by_name):
    def function(self, x):
        return (held_attention if by_name else F.scaled_dot_product_attention)(x, x, x, dropout_p=0.5)

    with pytest.raises(NotImplementedError, match=r"attention without dropout, got dropout_p 0.5 in .*Function"):
        export(Function(function).eval(), randn(1, 2, 6, 16), tmp_path / "a.aimodel", attention=attention)
    assert not list(tmp_path.iterdir())


def returned_state(self, x):
    self.total.add_(x)
    return self.total


def returned_beside_another(self, x):
    self.total.add_(x)
    return self.total, self.total * x


def returned_input(self, x):
    return x.mul_(2)


def only_state(self, x):
    self.total.add_(x)


@pytest.mark.parametrize(
    ("function", "outputs", "states"),
    [
        (returned_state, ["output"], ["total"]),
        (returned_beside_another, ["output_0", "output_1"], ["total"]),
        (returned_input, ["output"], ["inputs_0"]),
        (only_state, [], ["total"]),
    ],
)
def test_what_changes_may_be_returned_or_all_there_is(tmp_path, function, outputs, states):
    model, x = Function(function).eval(), randn(4)
    before = x.clone()
    report = export(model, x, tmp_path / "a.aimodel")
    assert report.functions["main"]["outputs"] == outputs and report.functions["main"]["states"] == states
    assert set(report.verification.outputs) == {*outputs, *states}
    assert_equal(model.total, torch.zeros(4))
    assert_equal(x, before)


@pytest.mark.parametrize(("result", "got"), [(None, "None"), (3, r"output \(int\)")])
def test_models_without_tensors_in_their_result_are_refused(tmp_path, result, got):
    with pytest.raises(TypeError, match=f"returns tensors or changes its buffers, got {got}"):
        export(Function(lambda self, x: result).eval(), randn(4), tmp_path / "a.aimodel")


def test_a_model_that_is_a_linear_layer(tmp_path):
    model = nn.Linear(32, 16).eval()
    report = export(model, randn(3, 32), tmp_path / "a.aimodel")
    assert [(row.name, row.on_kernel) for row in report.modules] == [("", True)]
    assert type(model) is nn.Linear and report.bytes > 0
    left = export(model, randn(3, 32), tmp_path / "b.aimodel", skip=["0"], verify=False)
    assert [(row.name, row.on_kernel) for row in left.modules] == [("", False)]


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(32, 32)
        self.same = self.one

    def forward(self, x):
        return self.same(self.one(x))


def test_a_layer_of_two_names_is_reported_as_called(tmp_path):
    report = export(Shared().eval(), randn(3, 32), tmp_path / "a.aimodel", verify=False)
    assert report.kernel_calls == 2 and [(row.name, row.on_kernel) for row in report.modules] == [("one", True)]


def test_what_apples_converter_cannot_take_is_an_error_of_ours(tmp_path):
    model = Function(lambda self, x: F.scaled_dot_product_attention(x, x, x[..., :7])).eval()
    with pytest.raises(NotImplementedError, match=r"that Core AI's converter .* takes, got its AssertionError"):
        export(model, randn(1, 2, 6, 16), tmp_path / "a.aimodel", attention=False)


def test_attention_with_its_weights_is_reported_as_pytorchs(tmp_path):
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.mha = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x):
            return self.mha(x, x, x)

    report = export(Weighted().eval(), randn(1, 5, 32), tmp_path / "a.aimodel", weights=None)
    (row,) = report.modules
    assert not row.on_kernel and row.reason == "no call of an attention function in the export"


def test_numbers_beyond_32_bits_are_an_error(tmp_path):
    model = Function(lambda self, x: torch.where(x > 2, x, torch.iinfo(torch.int64).min)).eval()
    with pytest.raises(NotImplementedError, match=r"takes, got its OverflowError: .* out of bounds for int32"):
        export(model, torch.tensor([1, 3]), tmp_path / "a.aimodel")


def test_attention_that_was_replaced_before_is_reported_as_it_is(tmp_path):
    model = Function(lambda self, x: F.scaled_dot_product_attention(x, x, x)).eval()
    torch_mtl4.enable()
    try:
        report = export(model, randn(1, 2, 6, 16), tmp_path / "a.aimodel", attention=False, verify=False)
    finally:
        torch_mtl4.disable()
    assert report.kernel_calls == 1 and [row.on_kernel for row in report.modules] == [True]
