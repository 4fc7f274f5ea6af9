"""What a GPU runs for mxfp8_quantize and mxfp8_dequantize: the grids, and how large ones are divided."""

import math

import pytest
import torch

from torch_mtl4 import _ops

from .golden import DEVICES, summary

SUFFIX = {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bfloat"}


def quantize(rows, k, dtype=torch.float16, scaling="rceil", caps="g13g macos14"):
    return summary(_ops.mxfp8_quantize_plan(torch.zeros(1, dtype=dtype).expand(rows, k), scaling, caps))


def dequantize(rows, k, dtype=torch.float16, caps="g13g macos14"):
    data, scale = (torch.zeros(1, dtype=torch.uint8).expand(rows, n) for n in (k, (k + 31) // 32))
    return summary(_ops.mxfp8_dequantize_plan(data, scale, dtype, caps))


@pytest.mark.parametrize("device", DEVICES)
def test_every_device_runs_the_same(device):
    assert quantize(3, 64, caps=DEVICES[device]) == [
        "mxfp8_quantize 3.1",
        "mxfp8_quantize_half{scaling=1}(x, data, scale) 1x1x1 groups of 256x1x1, [1, 192, 0, 0]",
    ]
    assert dequantize(3, 64, caps=DEVICES[device]) == [
        "mxfp8_dequantize 3.1",
        "mxfp8_dequantize_half{}(data, scale, out) 1x1x1 groups of 256x1x1, [1, 192, 0, 0]",
    ]


@pytest.mark.parametrize("dtype", SUFFIX)
def test_dtypes_and_scalings(dtype):
    for number, scaling in enumerate(("floor", "rceil", "ceil", "even")):
        assert quantize(1, 32, dtype, scaling)[1].startswith(f"mxfp8_quantize_{SUFFIX[dtype]}{{scaling={number}}}")
    assert dequantize(1, 32, dtype)[1].startswith(f"mxfp8_dequantize_{SUFFIX[dtype]}{{}}")


@pytest.mark.parametrize(
    ("k", "grid"),
    [
        (1, "1x4x1 groups of 8x32x1"),
        (33, "1x7x1 groups of 16x16x1"),
        (65, "1x13x1 groups of 32x8x1"),
        (1000, "1x100x1 groups of 256x1x1"),
        (1025, "2x100x1 groups of 256x1x1"),
        (4096, "400x1x1 groups of 256x1x1"),
    ],
)
def test_grids_fit_the_rows(k, grid):
    assert grid in quantize(100, k)[1]


@pytest.mark.parametrize(("rows", "k"), [(2**33, 1), (3 * 2**31 + 5, 33), (1, 2**34 + 1), (2**26, 2**11), (2**40, 32)])
@pytest.mark.parametrize(("plan", "per_thread"), [(quantize, 4), (dequantize, 8)])
def test_large_grids_are_divided(plan, per_thread, rows, k):
    """No position overflows 32 bits, and the passes cover every element once."""
    covered = 0
    for line in plan(rows, k)[1:]:
        shape, params = line.split(") ")[1].split(", [")
        groups, threads = ([int(n) for n in part.split("x")] for part in shape.split(" groups of "))
        assert all(g * t < 2**32 for g, t in zip(groups, threads, strict=True)) and math.prod(threads) <= 256
        height, width, row, column = (int(n) for n in params.rstrip("]").split(", "))
        assert height * width == rows * k and column % 32 == 0
        covered += min(groups[1] * threads[1], height - row) * min(groups[0] * threads[0] * per_thread, width - column)
    assert covered == rows * k
