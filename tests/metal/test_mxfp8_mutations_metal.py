"""The tests of mxfp8_linear would see a kernel that is wrong: without one of its barriers, or with another index."""

import functools

import pytest
import torch

from torch_mtl4 import _metal_sources, msl, testing
from torch_mtl4.msl.compile import preprocessed
from torch_mtl4.msl.frontend import count_barriers
from torch_mtl4.testing import exact_layer, exact_x

from .gpus import SCALE_PLANES, SIMDGROUP, TENSOR_OPS
from .mxfp8_harness import check_exact, run


def gemv():
    check_exact(SIMDGROUP[0], 2, 37, 1025, torch.float16, kernel="gemv_2")


def simdgroup():
    check_exact(SIMDGROUP[0], 33, 70, 70, torch.bfloat16, kernel="simdgroup_64")


def tensor_ops():
    check_exact(TENSOR_OPS[0], 20, 70, 70, torch.bfloat16, kernel="tensor_ops_32")


def scale_planes():
    check_exact(SCALE_PLANES[0], 20, 70, 256, torch.bfloat16, "dense", kernel="scale_planes_32")


def wide_rows():
    weight, scale, values = exact_layer(70, 1024)  # long enough for simdgroups to divide it
    x = exact_x(9, 1024, torch.bfloat16)
    x[4] *= 2.0**20
    x[2], x[7] = 0, 0
    x[2, 5:7] = x[7, 8:10] = torch.tensor([2.0**90, 1.0])
    got, _ = run(SCALE_PLANES[0], x, weight, scale)
    testing.assert_equal(got, (x.double() @ values.T).float().bfloat16())


NOTICED = (AssertionError, msl.KernelFaultError)  # a wrong result or a finding; the latter where a kernel cannot go on

# The barriers in the order of the text, with a case that runs each.
BARRIERS = [gemv, simdgroup, simdgroup, simdgroup, tensor_ops, wide_rows, wide_rows, scale_planes]
IDLE = {7: "mem_none: it keeps simdgroups together and orders nothing"}

INDICES = {
    "a row of the weight too far": (gemv, "weight + n * p.weight_stride + k", "weight + (n + 1) * p.weight_stride + k"),
    "the next block's scale": (gemv, "n * p.scale_stride + k / kMxBlock", "n * p.scale_stride + (k + 16) / kMxBlock"),
    "the end of k": (gemv, "if (i < left) words", "if (i <= left) words"),
    "another simdgroup's part": (gemv, "sums[(int(simdgroup) + i)", "sums[(int(simdgroup) + 0)"),
    "the sum of another row of x": (gemv, "first_row + int(lane) / kColumns", "first_row + int(lane) % M"),
    "every second row of the weight": (gemv, "first + int(lane) % kColumns", "first + int(lane) % 2"),
    "out without its edge": (simdgroup, "if (m >= p.m || n >= p.n) return;", "if (m > p.m || n >= p.n) return;"),
    "x and weight alike": (simdgroup, "place.column[1] * Tiles::kWStride", "place.row[0] * Tiles::kWStride"),
    "x beyond k": (tensor_ops, "i < left ? x[", "i <= left ? x["),
    "one buffer for all steps": (tensor_ops, "buffers[k / kMxBlock % 2]", "buffers[0]"),
    "rows for columns": (tensor_ops, "m0 + place[1], n0 + place[0], sums[i]", "m0 + place[0], n0 + place[1], sums[i]"),
    "the first step again": (scale_planes, "right.slice(from, 0)", "right.slice(0, 0)"),
    "another row's factor": (wide_rows, "sum * factor[row]", "sum * factor[0]"),
    "only the first wide row": (wide_rows, "marked &= marked - 1", "marked = 0"),
}  # fmt: skip


def test_every_barrier_has_a_case():
    text, _ = preprocessed(_metal_sources.flattened("mxfp8_linear"), "mxfp8_linear.metal", (), None, "macos27")
    assert count_barriers(text) == len(BARRIERS)


@pytest.mark.parametrize("n", range(len(BARRIERS)))
def test_a_missing_barrier_is_noticed(compiled_anew, n):
    compiled_anew.setattr(msl, "compile", functools.partial(msl.compile, without_barrier=n))
    if n in IDLE:
        return BARRIERS[n]()
    with pytest.raises(NOTICED, match="race"):
        BARRIERS[n]()


@pytest.mark.parametrize("mistake", INDICES)
def test_a_wrong_index_is_noticed(compiled_anew, mistake):
    case, right, wrong = INDICES[mistake]
    text = _metal_sources.flattened("mxfp8_linear")
    assert text.count(right) == 1
    compiled_anew.setattr(_metal_sources, "flattened", lambda name: text.replace(right, wrong))
    with pytest.raises(NOTICED):
        case()
