"""Weights in blocks of 4 and 8 bits against bytes and values worked out by hand."""

import math

import pytest
import torch

from torch_mtl4 import testing
from torch_mtl4.formats import FORMATS

MAGNITUDES = [0, 0.5, 1, 1.5, 2, 3, 4, 6]  # of e2m1: OCP MX v1.0, table 5


def codes_of(byte):
    return byte % 16, byte // 16


def test_what_bytes_stand_for():
    e2m1 = MAGNITUDES + [-float(m) for m in MAGNITUDES]
    want = torch.tensor([[e2m1[code] for code in codes_of(byte)] for byte in range(256)])
    testing.assert_equal(FORMATS["mxfp4"].table(), want)
    int4 = [*range(8), *range(-8, 0)]
    want = torch.tensor([[float(int4[code]) for code in codes_of(byte)] for byte in range(256)])
    testing.assert_equal(FORMATS["int4"].table(), want)
    want = torch.arange(256).to(torch.uint8).view(torch.int8).float()[:, None]
    testing.assert_equal(FORMATS["int8"].table(), want)


def test_the_even_element_is_in_the_low_half():
    packed = FORMATS["int4"].pack(torch.tensor([[1, 2, 15, 0, 7]]))
    assert packed.tolist() == [[0x21, 0x0F, 0x07]] and packed.dtype == torch.uint8


def test_mxfp4_by_hand():
    weight = torch.zeros(1, 40)
    weight[0, :4] = torch.tensor([12.0, -3.0, 2.5, 0.4])  # amax 12 = 1.5 * 2^3: scale 2^(3 - 2)
    weight[0, 32:34] = torch.tensor([-0.75, 0.375])  # amax 1.5 * 2^-1: scale 2^-3
    data, scale = FORMATS["mxfp4"].quantize(weight, 32)
    assert scale.tolist() == [[128, 124]]
    # 6, -1.5, 1.25 -> 1 (even code), 0.2 -> 0; -6, 3
    assert data[0, :2].tolist() == [0x7 | 0xB << 4, 0x2] and data[0, 16].item() == 0xF | 0x5 << 4
    values = FORMATS["mxfp4"].dequantize(data, scale, 40, 32)
    assert values[0, [0, 1, 2, 3, 32, 33]].tolist() == [12, -3, 2, 0, -0.75, 0.375]


def test_integers_by_hand():
    weight = torch.tensor([[7.5, -7.5, 1.0, 0.4, 3.0]])
    data, scale = FORMATS["int4"].quantize(weight, 0)
    assert scale.tolist() == [[1.0]] and scale.dtype == torch.float32
    # 7.5 -> 8 is clamped to 7; -7.5 -> -8
    assert data.tolist() == [[0x7 | 0x8 << 4, 0x1, 0x3]]
    assert FORMATS["int4"].dequantize(data, scale, 5, 0).tolist() == [[7, -8, 1, 0, 3]]
    data, scale = FORMATS["int8"].quantize(torch.tensor([[127.5, -127.5], [0.0, 0.0]]), 0)
    assert scale.tolist() == [[1.0], [torch.finfo(torch.float32).eps]]
    assert data.tolist() == [[127, 128], [0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FORMATS)
def test_values_quantize_to_themselves(name, dtype):
    form = FORMATS[name]
    block = form.block and 64 if name == "int4" else form.block
    data, scale = form.quantize(testing.randn(9, 200, dtype=dtype), block)
    assert data.shape == form.data_shape(9, 200) and scale.shape == form.scale_shape(9, 200, block=block)
    assert scale.dtype == (form.scale_dtype or dtype)
    if name == "mxfp4":
        values = form.dequantize(data, scale, 200, block).to(dtype)
        again, scale_again = form.quantize(values, block)
        testing.assert_equal(scale_again, scale)
        testing.assert_equal(form.dequantize(again, scale, 200, block), form.dequantize(data, scale, 200, block))


def test_errors_are_half_a_step():
    weight = testing.randn(16, 256)
    for name, steps in (("int4", 15), ("int8", 255)):
        form = FORMATS[name]
        values = form.dequantize(*form.quantize(weight, 32), 256, 32)
        amax = weight.unflatten(-1, (-1, 32)).abs().amax(-1).repeat_interleave(32, -1)
        assert ((values - weight).abs() <= amax / steps * 1.0001).all()


def test_not_a_number_spoils_its_block_only():
    weight = testing.randn(2, 64)
    weight[0, 3], weight[1, 40] = math.nan, math.inf
    form = FORMATS["mxfp4"]
    data, scale = form.quantize(weight, 32)
    assert scale[0, 0] == 255 and scale[1, 1] == 255
    values = form.dequantize(data, scale, 64, 32)
    assert values[0, :32].isnan().all() and values[1, 32:].isnan().all()
    assert values[0, 32:].isfinite().all() and values[1, :32].isfinite().all()
