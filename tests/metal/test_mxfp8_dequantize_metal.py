"""mxfp8_dequantize as a GPU would run it, on the MSL runner: equal bits with the CPU op."""

import pytest
import torch

from torch_mtl4 import mxfp8_dequantize, testing
from torch_mtl4.msl_backend import emulated

from .gpus import SIMDGROUP

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def check(data, scale, dtype, **options):
    want = mxfp8_dequantize(data, scale, dtype=dtype)
    with emulated(options.pop("caps", SIMDGROUP[0]), **options) as emulation:
        got = mxfp8_dequantize(data, scale, dtype=dtype)
    assert bool(emulation.dispatches) == (want.numel() > 0)
    testing.assert_equal(got, want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("caps", SIMDGROUP)
def test_every_code_under_every_scale(caps, dtype):
    data = torch.arange(256, dtype=torch.uint8).repeat(256, 1)
    scale = torch.arange(256, dtype=torch.uint8)[:, None].repeat(1, 8)
    check(data, scale, dtype, caps=caps)


def codes(rows, k):
    data = torch.randint(0, 256, (rows, k), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    scale = torch.randint(100, 150, (rows, (k + 31) // 32), generator=torch.Generator().manual_seed(2))
    return data, scale.to(torch.uint8)


@pytest.mark.parametrize("k", [0, 1, 3, 4, 5, 7, 8, 9, 31, 32, 33, 63, 65, 255, 256, 257, 2049])
def test_sizes(k):
    for dtype in DTYPES:
        check(*codes(3, k), dtype, shuffle=True)


def test_more_than_one_threadgroup_each_way():
    for rows, k in ((70, 33), (70, 64), (3, 2100)):
        check(*codes(rows, k), torch.float16)


@pytest.mark.parametrize("layout", testing.LAYOUTS)
def test_strides(layout):
    data, scale = codes(6, 70)
    check(*(testing.lay_out(t.view(3, 2, -1), layout) for t in (data, scale)), torch.bfloat16)
