"""The twin runs the file: its operands, wiring, grids, sizes and states, with references in place of kernels."""

import pytest
import torch

pytest.importorskip("coreai_torch", reason="Core AI is not installed: pip install torch_mtl4[coreai]")

from tests.export.apple_kernels import change
from torch_mtl4 import testing
from torch_mtl4.export.coreai.interpreter import to_numpy, to_tensor
from torch_mtl4.export.coreai.twin import TwinError, draw_calls, run_twin


def references(made):
    return {name: record.reference for name, record in made.records.items()}


def assert_equals_model(run, made, x):
    truth = made.model(x).detach()
    allowed = testing.MODEL_FLOOR_EPS[x.dtype] * torch.finfo(x.dtype).eps * truth.abs().max().item()
    testing.assert_close(run.outputs["y"], truth, allowed)


def test_twin_equals_the_model_and_tells_what_kernels_get(rows):
    before = (rows.path / "main.mlirb").read_bytes()
    run = run_twin(rows.path, references(rows), {"x": rows.x})
    assert_equals_model(run, rows, rows.x)
    weight = rows.model.w.detach()
    first, second = run.calls
    assert (first.grid, first.group, first.result_shapes) == ((24, 8, 1), (8, 4, 1), ((8, 24), (8,)))
    testing.assert_close(first.operands[0], rows.model.linear(rows.x), 1e-5)
    testing.assert_equal(first.operands[1], weight)
    scaled, largest = first.results
    testing.assert_close(scaled, first.operands[0] * weight, 1e-6)
    testing.assert_close(second.operands[0], scaled * largest[:, None], 1e-5)
    assert (rows.path / "main.mlirb").read_bytes() == before


@pytest.mark.parametrize("size", [1, 5, 8])
def test_sizes_that_depend_on_the_input(any_rows, size):
    x = testing.randn(size, 24)
    run = run_twin(any_rows.path, references(any_rows), {"x": x})
    assert_equals_model(run, any_rows, x)
    assert [call.grid for call in run.calls] == [(24, size, 1)] * 2
    drawn = draw_calls(any_rows.path, {"x": x})
    assert [call.grid for call in drawn] == [(24, size, 1)] * 2
    assert [tuple(t.shape) for t in drawn[1].operands] == [(size, 24), (24,)]
    testing.assert_equal(drawn[0].operands[1], any_rows.model.w.detach())  # a weight is the file's


def test_only_what_is_watched_is_kept(rows):
    run = run_twin(rows.path, references(rows), {"x": rows.x}, watch=lambda name: False)
    assert not run.calls and list(run.outputs) == ["y"]


def test_a_kernel_without_a_reference_is_named(rows):
    with pytest.raises(TwinError, match=f"{rows.name}: expected a reference"):
        run_twin(rows.path, {}, {"x": rows.x})


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda x, w: x * w, "expected 2 results of its reference, got 1"),
        (lambda x, w: (x * w, x.amax(0)), r"result 1 of its reference f32 \[8\] as in the asset, got f32 \[24\]"),
        (lambda x, w: ((x * w).half(), x.amax(-1)), r"result 0 of its reference f32 .* got f16"),
        (lambda x, w: (x * w, torch.special.i1(x).amax(-1)), "operations that Core AI knows, got .*i1"),
    ],
)
def test_a_reference_that_does_not_fit(rows, reference, message):
    with pytest.raises(TwinError, match=message):
        run_twin(rows.path, dict.fromkeys(rows.records, reference), {"x": rows.x})


def test_an_operand_of_the_file_that_is_another_value(rows, tmp_path):
    made, first = rows.copied_to(tmp_path), []

    def feed_the_second_call_what_the_first_had(op):
        first.append(op.operands[0])
        op.operands[0] = first[0]

    change(made.path, feed_the_second_call_what_the_first_had)
    run = run_twin(made.path, references(made), {"x": made.x})
    with pytest.raises(AssertionError):
        assert_equals_model(run, made, made.x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int32, torch.bool])
def test_arrays_and_tensors_are_the_same_bits(dtype):
    tensor = torch.randn(3, 4).mul(10).abs().to(dtype)
    testing.assert_equal(to_tensor(to_numpy(tensor.t())), tensor.t().contiguous())
    assert to_tensor(to_numpy(torch.ones((), dtype=torch.int64))).dtype == torch.int32
