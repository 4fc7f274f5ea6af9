"""The kernels of weights in blocks of 4 and 8 bits on the MSL runner, against their reference."""

import pytest
import torch

from torch_mtl4 import testing
from torch_mtl4.custom import on_cpu
from torch_mtl4.formats import FORMATS
from torch_mtl4.ops.quantized_linear import kernel, quantized_linear

pytest.importorskip("numpy")


def problem(format, m, n, k, block, dtype=torch.float32):
    form = FORMATS[format]
    weight, scale = form.quantize(testing.randn(n, k, seed=1).to(dtype), block)
    return testing.randn(m, k, dtype=dtype), weight, scale


SIZES = [
    # rows of x, rows of the weight around a threadgroup's, and lengths around what a simdgroup takes at once
    (1, 33, 64), (1, 5, 1030), (3, 17, 96), (8, 16, 1024), (9, 15, 1100), (2, 1, 1), (1, 3, 31),
]  # fmt: skip


@pytest.mark.parametrize("m, n, k", SIZES)
@pytest.mark.parametrize("format, block", [("mxfp4", 32), ("int4", 64), ("int4", 0), ("int8", 0), ("int8", 16)])
def test_every_byte_and_edge(format, block, m, n, k):
    x, weight, scale = problem(format, m, n, k, block)
    aligned = weight.shape[1] % 16 == 0
    report = kernel(format, 1 if m == 1 else 8).check(x, weight, scale, block, aligned)
    assert report, str(report)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("format", FORMATS)
def test_half_precision(format, dtype):
    x, weight, scale = problem(format, 9, 18, 96, FORMATS[format].block, dtype)
    report = kernel(format, 8).check(x, weight, scale, FORMATS[format].block, weight.shape[1] % 16 == 0)
    assert report, str(report)


def test_every_code_under_extreme_scales():
    # Bytes 1 .. 250: sums are finite. One element of each row is not zero, so nothing rounds.
    form = FORMATS["mxfp4"]
    codes = torch.arange(16).repeat(8)
    scales = torch.tensor([1, 2, 63, 64, 126, 127, 128, 250]).repeat_interleave(16)
    dense = torch.zeros(128, 32, dtype=torch.int64)
    dense[:, 5] = codes
    weight, scale = form.pack(dense), scales.to(torch.uint8)[:, None]
    x = torch.ones(1, 32)
    want = (form.element.decode(codes) * torch.exp2(scales.double() - 127)).float()
    with on_cpu("msl"):
        out = quantized_linear(x, weight, scale, format="mxfp4", block=32)
    testing.assert_equal(out.abs(), want[None].abs())


def test_nan_scales_make_nan():
    _, weight, scale = problem("mxfp4", 1, 4, 64, 32)
    scale[2, 1] = 255
    with on_cpu("msl"):
        out = quantized_linear(torch.ones(1, 64), weight, scale, format="mxfp4", block=32)
    assert out.isnan().tolist() == [[False, False, True, False]]


def test_weights_at_an_offset():
    x, weight, scale = problem("int8", 1, 8, 64, 0)
    buffer = torch.full((8 * 64 + 3,), 255, dtype=torch.uint8)
    view = buffer[3:].view(8, 64).copy_(weight)
    with on_cpu("msl"):
        testing.assert_equal(
            quantized_linear(x, view, scale, format="int8", block=0),
            quantized_linear(x, weight, scale, format="int8", block=0),
        )


def test_bytes_are_read_once_for_one_row():
    k, n = 2048, 64
    x, weight, scale = problem("int4", 1, n, k, 32)
    cost = kernel("int4", 1).cost(x, weight, scale, 32, True)
    # The weight and its scales once; x once for each of the 16 simdgroups.
    assert cost.buffers["weight"].read == weight.numel() and cost.buffers["scale"].read == 4 * scale.numel()
    assert cost.buffers["x"].read == 16 * 4 * k
