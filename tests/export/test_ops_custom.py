"""Kernels of torch_mtl4.metal_kernel in Core AI: the same text, symbolic grids, scalars in the text."""

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from tests.export import edge
from tests.export.conversion import Calls, constant_of, convert, kernels_of, operations
from torch_mtl4 import metal_kernel
from torch_mtl4.testing import assert_equal, integers


def scale_add(x: Tensor, y: Tensor, alpha: float) -> Tensor:
    return x + alpha * y


def row_sums(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(-1), x.amax(-1)


@pytest.fixture
def made():
    """Makes kernels, and frees their names in the end."""
    kernels = []

    def make(*args, **options):
        kernels.append(metal_kernel(*args, **options))
        return kernels[-1]

    yield make
    for kernel in kernels:
        kernel.remove()


@pytest.fixture
def add(made):
    return made(
        "emit_scale_add",
        ["x", "y", "alpha"],
        ["out"],
        "if (int(p.x) >= out.get_extent(0) || int(p.y) >= out.get_extent(1)) return;\n"
        "out[p.x, p.y] = x[p.x, p.y] + alpha * y[p.x, p.y];",
        scale_add,
        grid=lambda x: (64, (x.shape[0] + 3) // 4 * 4),
        threadgroup=(32, 4),
        thread_parameters={"p": "uint2 thread_position_in_grid"},
    )


@pytest.fixture
def sums(made):
    return made(
        "emit_row_sums",
        ["x"],
        ["total", "most"],
        "T sum = 0, top = x[0, i];\n"
        "for (int k = 0; k < x.get_extent(0); ++k) sum += x[k, i], top = max(top, x[k, i]);\n"
        "total[i] = sum;\n"
        "most[i] = top;",
        row_sums,
        grid=lambda x: (x.shape[0],),
        threadgroup=(8,),
        thread_parameters={"i": "uint thread_position_in_grid"},
        templates={"x": "T"},
        output_shapes=lambda x: [x.shape[:1], x.shape[:1]],
        output_dtypes=["x", "x"],
    )


def test_converts_and_runs(add):
    x, y = (integers(-9, 9, (5, 50), seed).float() for seed in (1, 2))
    program, emission = convert(Calls(lambda x, y: add(add(x, y, 2.0), y, 3.0)), [x, y])
    first, second = emission.kernels.values()
    assert kernels_of(program) == [(k.name, k.text) for k in (first, second)] and first.text != second.text
    assert first.text == add.source(x, y, 2.0)
    (got,) = edge.run(first, [x, y])
    assert_equal(got, x + 2 * y)
    assert_equal(second.reference(x, y), x + 3 * y)
    (call, _) = operations(program, "coreai.metal4_kernel")
    assert [constant_of(v) for v in list(call.operands)[2:]] == [[64, 8, 1], [32, 4, 1], [5, 50]]


def test_several_results_and_one_text_for_all_lengths(sums):
    program, emission = convert(Calls(lambda x: sums(x)), [torch.ones(5, 6)], [{0: Dim("n", min=1, max=100)}])
    (kernel,) = emission.kernels.values()
    (call,) = operations(program, "coreai.metal4_kernel")
    assert constant_of(call.operands[1]) is None and constant_of(call.operands[2]) == [8, 1, 1]
    for n in (1, 8, 9, 20):
        x = integers(-9, 9, (n, 6), n).float()
        assert kernel.launch([(n, 6)]) == ((n, 1, 1), (8, 1, 1), ((n,), (n,)))
        for got, want, reference in zip(edge.run(kernel, [x]), row_sums(x), kernel.reference(x), strict=True):
            assert_equal(got, want)
            assert_equal(reference, want)


def test_two_calls_of_one_text_are_one_kernel(add):
    x, y = torch.ones(5, 40), torch.ones(9, 40)
    _, emission = convert(Calls(lambda x, y: (add(x, x, 2.0), add(y, y, 2.0))), [x, y])
    assert len(emission.kernels) == 1
    assert [call.shapes[0] for call in emission.calls] == [(5, 40), (9, 40)]
