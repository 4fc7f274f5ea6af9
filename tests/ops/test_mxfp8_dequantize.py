"""mxfp8_dequantize, bit for bit."""

import math

import pytest
import torch

from torch_mtl4 import mxfp8_dequantize, mxfp8_quantize, testing
from torch_mtl4.reference import mxfp8 as reference

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
CODES = torch.arange(256).to(torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_code_under_every_scale(dtype):
    data = CODES.expand(256, 256).contiguous()
    scale = CODES[:, None].expand(256, 8).contiguous()
    got = mxfp8_dequantize(data, scale, dtype=dtype)
    want = data.view(torch.float8_e4m3fn).double() * scale.view(torch.float8_e8m0fnu).double().repeat_interleave(32, 1)
    testing.assert_equal(got, want.to(dtype))
    testing.assert_equal(reference.mxfp8_dequantize(data, scale, dtype=dtype), want.to(dtype), "reference")


def test_scale_bytes_that_half_decoders_flush():
    scale = torch.tensor([[0], [1], [2], [102], [103], [112], [113], [127], [128], [254], [255]], dtype=torch.uint8)
    one = torch.full((11, 1), 0x38, dtype=torch.uint8)
    exact = [math.ldexp(1.0, b - 127) for b in scale[:-1].flatten().tolist()]
    got = mxfp8_dequantize(one, scale, dtype=torch.float32).flatten()
    assert got[:-1].tolist() == exact and got[-1].isnan()
    half = mxfp8_dequantize(one, scale, dtype=torch.float16).flatten()
    assert half[:10].tolist() == [0, 0, 0, 0, 2.0**-24, 2.0**-15, 2.0**-14, 1, 2, math.inf] and half[10].isnan()
    assert mxfp8_dequantize(one, scale, dtype=torch.bfloat16).flatten()[:10].tolist() == exact


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 31, 32, 33, 63, 64, 65, 100, 129, 1000])
def test_sizes(k, dtype):
    data, scale = mxfp8_quantize(testing.randn(5, k))
    got = mxfp8_dequantize(data, scale, dtype=dtype)
    testing.assert_equal(got, reference.mxfp8_dequantize(data, scale, dtype=dtype))
    assert got.is_contiguous()


@pytest.mark.parametrize("shape", [(64,), (2, 3, 64), (2, 1, 3, 33), (0, 64), (3, 0), (0,)])
def test_shapes(shape):
    data, scale = mxfp8_quantize(testing.randn(*shape))
    testing.assert_equal(
        mxfp8_dequantize(data, scale, dtype=torch.float32), reference.mxfp8_dequantize(data, scale, dtype=torch.float32)
    )


@pytest.mark.parametrize("data_layout", testing.LAYOUTS)
@pytest.mark.parametrize("scale_layout", testing.LAYOUTS)
def test_any_strides(data_layout, scale_layout):
    data, scale = mxfp8_quantize(testing.randn(3, 5, 96))
    got = mxfp8_dequantize(
        testing.lay_out(data, data_layout), testing.lay_out(scale, scale_layout), dtype=torch.float32
    )
    testing.assert_equal(got, mxfp8_dequantize(data, scale, dtype=torch.float32))


@pytest.mark.parametrize("only", ["data", "scale", "both"])
@pytest.mark.parametrize("part", [slice(0, 16), slice(128, 256), slice(1, None, 2)])
def test_slicing_bytes_equals_slicing_values(part, only):
    data, scale = mxfp8_quantize(testing.randn(2, 256, 64))
    want = mxfp8_dequantize(data, scale, dtype=torch.float32)[:, part]
    data, scale = data[:, part], scale[:, part]
    if only != "both":
        data, scale = (t if name == only else t.contiguous() for name, t in (("data", data), ("scale", scale)))
    testing.assert_equal(mxfp8_dequantize(data, scale, dtype=torch.float32), want.contiguous())


@pytest.mark.parametrize("data_dtype", [torch.uint8, torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("scale_dtype", [torch.uint8, torch.int8, torch.float8_e8m0fnu])
@pytest.mark.parametrize("layout", ["dense", "gapped", "transposed"])
def test_bytes_under_another_name(layout, data_dtype, scale_dtype):
    scale = torch.tensor([[127], [128], [129], [200], [255], [0]], dtype=torch.uint8)
    data = CODES[:192].view(6, 32)
    got = mxfp8_dequantize(
        testing.lay_out(data, layout).view(data_dtype), testing.lay_out(scale, layout).view(scale_dtype),
        dtype=torch.float32,
    )  # fmt: skip
    testing.assert_equal(got, mxfp8_dequantize(data, scale, dtype=torch.float32))
