"""mxfp8_quantize as a GPU would run it, on the MSL runner: equal bytes with the CPU op."""

import pytest
import torch

from torch_mtl4 import mxfp8_quantize, testing
from torch_mtl4.msl_backend import emulated

from .gpus import SIMDGROUP

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SCALINGS = ("floor", "rceil", "ceil", "even")


def check(x, scaling="rceil", **options):
    want = mxfp8_quantize(x, scaling=scaling)
    with emulated(options.pop("caps", SIMDGROUP[0]), **options) as emulation:
        got = mxfp8_quantize(x, scaling=scaling)
    assert bool(emulation.dispatches) == (x.numel() > 0)
    for name, bytes_, expected in zip(("data", "scale"), got, want, strict=True):
        testing.assert_equal(bytes_, expected, f"{name} of {scaling}, {x.dtype}")


def every(dtype):
    """Every value of a format of 16 bits; of float32 those of both, and the neighbours of each."""
    if dtype != torch.float32:
        return torch.arange(65536).to(torch.int32).sub(32768).to(torch.int16).view(dtype)
    values = torch.cat([every(d).float() for d in (torch.float16, torch.bfloat16)])[::7]
    bits = values.view(torch.int32)
    return torch.cat([bits, bits + 1, bits - 1]).view(torch.float32)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_value_as_the_largest_of_its_block_and_under_the_scale_of_another(dtype, scaling):
    values = every(dtype)
    x = torch.zeros(values.numel(), 2, dtype=dtype)
    x[:, 1] = values
    check(x, scaling, checked=False)
    finite = values[values.isfinite()]
    x = finite[: finite.numel() // 31 * 31].view(-1, 31)
    for largest in (2.0**-12, 1.75, 1.9921875, 2.0**10):
        check(torch.cat([torch.full((x.shape[0], 1), largest, dtype=dtype), x], 1), scaling, checked=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_and_inf_in_any_lane_spoil_their_block_and_no_other(dtype):
    x = torch.arange(1, 97).float().repeat(12, 1)
    for row, (position, value) in enumerate((p, v) for p in (0, 1, 15, 31) for v in (torch.nan, -torch.inf, torch.inf)):
        x[row, 32 + position] = value
    for scaling in SCALINGS:
        check(x.to(dtype), scaling)


@pytest.mark.parametrize("k", [0, 1, 3, 4, 5, 31, 32, 33, 63, 65, 127, 129, 1025])
@pytest.mark.parametrize("caps", SIMDGROUP)
def test_sizes(caps, k):
    for rows in (0, 1, 5):
        for dtype in DTYPES:
            check(testing.lay_out(testing.randn(rows, k, dtype=dtype), "poisoned"), caps=caps, shuffle=True, seed=k)


def test_more_than_one_threadgroup_each_way():
    check(testing.randn(70, 33))
    check(testing.randn(3, 2080))
    check(testing.randn(3, 2, 2050), shuffle=True)


@pytest.mark.parametrize("layout", testing.LAYOUTS)
def test_strides(layout):
    check(testing.lay_out(testing.randn(3, 2, 70, dtype=torch.bfloat16), layout))
