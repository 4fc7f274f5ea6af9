"""mxfp8_quantize, bit for bit: against the reference's tables, PyTorch's own casts, and torchao where modes agree."""

import math

import pytest
import torch

from torch_mtl4 import mxfp8_dequantize, mxfp8_quantize, testing
from torch_mtl4.reference import mxfp8 as reference

SCALINGS = ("floor", "rceil", "ceil", "even")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def check(x, scaling="rceil"):
    data, scale = mxfp8_quantize(x, scaling=scaling)
    want_data, want_scale = reference.mxfp8_quantize(x, scaling=scaling)
    testing.assert_equal(scale, want_scale, "scale")
    testing.assert_equal(data, want_data, "data")
    assert data.is_contiguous() and scale.is_contiguous()
    return data, scale


def wide(*shape, dtype=torch.float32, seed=0):
    """Values over the whole range of the dtype, one exponent a block of 32."""
    x = testing.randn(*shape, seed=seed)
    top = {torch.float32: 126, torch.bfloat16: 126, torch.float16: 15}[dtype]
    exponent = (
        testing.randn(*shape[:-1], -(-shape[-1] // 32), seed=seed + 1).mul(top / 2).clamp(-top - 20, top - 2).round()
    )
    return torch.ldexp(x, exponent.repeat_interleave(32, -1)[..., : shape[-1]].int()).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("k", [1, 2, 31, 32, 33, 63, 64, 65, 95, 96, 100, 127, 128, 160, 256, 1000])
def test_sizes(k, scaling, dtype):
    data, scale = check(wide(7, k, dtype=dtype, seed=k), scaling)
    assert data.shape == (7, k) and scale.shape == (7, -(-k // 32))


@pytest.mark.parametrize("shape", [(64,), (1, 64), (3, 5, 64), (2, 3, 4, 33), (2, 1, 1, 1, 32)])
def test_leading_dimensions(shape):
    check(testing.randn(*shape))


@pytest.mark.parametrize("shape", [(0, 64), (64, 0), (0,), (0, 0), (3, 0, 32)])
def test_empty_sizes(shape):
    data, scale = mxfp8_quantize(torch.empty(shape))
    assert data.shape == shape and scale.shape == (*shape[:-1], -(-shape[-1] // 32))


@pytest.mark.parametrize("layout", testing.LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 70), (3, 4, 64), (70,)])
def test_any_strides(shape, dtype, layout):
    check(testing.lay_out(testing.randn(*shape, dtype=dtype), layout))


def test_expanded_input():
    check(testing.randn(1, 64).expand(5, 64))
    check(testing.randn(5, 1).expand(5, 64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_every_float16_pattern(scaling, dtype):
    # All 65536 patterns of a half type are among the inputs; blocks are strided so that each mixes magnitudes.
    pattern = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    half = torch.bfloat16 if dtype == torch.float32 else dtype
    values = pattern.view(half)
    for x in (values.view(-1, 32), values.view(32, -1).T):
        check(x.to(dtype).contiguous(), scaling)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("exponent", [-140, -127, -126, -120, -119, -20, -9, 0, 8, 100, 119, 126, 127])
def test_values_around_every_code(exponent, scaling):
    # The edges between codes, and one float32 to either side, under an unchanging block maximum of 1.5 * 2^exponent.
    codes = torch.arange(0x7F).to(torch.uint8).view(torch.float8_e4m3fn).float()
    edges = torch.cat([codes, (codes[1:] + codes[:-1]) / 2])
    x = torch.ldexp(edges, torch.tensor(exponent - 9))
    x = torch.cat([x, torch.nextafter(x, torch.tensor(math.inf)), torch.nextafter(x, torch.tensor(-math.inf)), -x])
    x = torch.nn.functional.pad(x, (0, -x.numel() % 31)).view(-1, 31)
    x = torch.cat([torch.full((x.shape[0], 1), 1.5), x], 1).clone()
    x[:, 0] = torch.ldexp(x[:, 0], torch.tensor(exponent))
    check(x.clamp(-3e38, 3e38), scaling)


AMAX = [1.9999998807907104, 2.0, 448.0, 448.000030517578125, 449.0, 895.9999, 896.0, 496.0, 495.99997]


@pytest.mark.parametrize("scaling,bytes_", [("floor", [119, 120, 127, 127, 127, 127, 128, 127, 127]),
                                            ("rceil", [120, 120, 127, 128, 128, 128, 128, 128, 128]),
                                            ("ceil", [120, 120, 128, 128, 128, 129, 129, 128, 128]),
                                            ("even", [120, 120, 127, 127, 127, 128, 128, 128, 127])])  # fmt: skip
@pytest.mark.parametrize("position", [0, 15, 31])
def test_scale_bytes_at_the_edges_of_a_power_of_two(scaling, bytes_, position):
    if scaling in ("floor", "even"):
        bytes_ = bytes_[:5] + bytes_[6:]
    x = torch.zeros(len(AMAX), 32)
    x[:, position] = torch.tensor(AMAX)
    if scaling in ("floor", "even"):
        x = torch.cat([x[:5], x[6:]])
    assert check(x, scaling)[1].flatten().tolist() == bytes_
    assert check(-x, scaling)[1].flatten().tolist() == bytes_


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("exponent", range(-126, 127, 11))
def test_scale_bytes_do_not_go_through_a_rounded_logarithm(exponent, scaling):
    edge = torch.ldexp(torch.tensor([1.0, 1.75, 1.9375]), torch.tensor(exponent))
    amax = torch.cat([edge, torch.nextafter(edge, torch.tensor(math.inf)), torch.nextafter(edge, torch.tensor(0.0))])
    check(torch.nn.functional.pad(amax[:, None], (0, 31)), scaling)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("position", [0, 1, 15, 16, 31])
@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf])
def test_nan_and_inf_spoil_their_block_and_no_other(bad, position, scaling, dtype):
    x = torch.arange(1, 129).to(dtype).view(2, 64)
    clean = mxfp8_quantize(x, scaling=scaling)
    x[1, 32 + position] = bad
    data, scale = check(x, scaling)
    assert scale[1, 1] == 255 and (data[1, 32:] == 0x7F).all()
    assert mxfp8_dequantize(data, scale, dtype=dtype)[1, 32:].isnan().all()
    testing.assert_equal(data[0], clean[0][0])
    testing.assert_equal(data[1, :32], clean[0][1, :32])
    testing.assert_equal(scale[0], clean[1][0])


@pytest.mark.parametrize("position", [0, 3])
def test_nan_in_a_short_last_block(position):
    x = torch.ones(3, 36)
    x[1, 32 + position] = math.nan
    data, scale = check(x)
    assert scale[:, 1].tolist() == [119, 255, 119] and (data[1, 32:] == 0x7F).all()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_zeros_keep_their_sign(scaling):
    x = torch.zeros(2, 64)
    x[1] = -0.0
    data, scale = check(x, scaling)
    assert (scale == 0).all() and (data[0] == 0).all() and (data[1] == 0x80).all()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_subnormal_inputs(scaling):
    x = torch.ldexp(testing.randn(40, 32), torch.tensor(-130)) * torch.logspace(0, -6, 40)[:, None]
    assert x.abs().max() < 2.0**-126
    check(x, scaling)


def test_short_blocks_do_not_read_their_neighbours():
    x = testing.poison(4, 50, dtype=torch.float32)
    x[:, :40] = testing.randn(4, 40)
    data, scale = check(x[:, :40])
    whole = mxfp8_quantize(torch.nn.functional.pad(x[:, :40], (0, 24)))
    testing.assert_equal(scale, whole[1])
    testing.assert_equal(data, whole[0][:, :40].contiguous())


@pytest.mark.parametrize("scaling,loss", [("rceil", 1 / 16), ("ceil", 1 / 16), ("floor", 1 / 8)])
def test_loss_at_the_largest_of_a_block(scaling, loss):
    x = testing.randn(512, 32)
    back = mxfp8_dequantize(*mxfp8_quantize(x, scaling=scaling), dtype=torch.float32)
    at = x.abs().argmax(1, keepdim=True)
    largest, got = x.gather(1, at).abs(), back.gather(1, at).abs()
    assert ((largest - got).abs() / largest).max() <= loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_bytes_equal_torchao(scaling, dtype):
    mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
    mode = {name: mx.ScaleCalculationMode(name) for name in SCALINGS}[scaling]
    # Where torchao's byte is 0 it divides by 1 or 2^-126 instead of 2^-127, and its rceil takes a rounded logarithm:
    # random values of moderate size meet neither.
    x = torch.ldexp(testing.randn(256, 96), testing.randn(256, 1, seed=1).mul(15).int()).to(dtype)
    x[3] = 0
    x[5, 40] = math.nan
    want_scale, want_data = mx.to_mx(x, torch.float8_e4m3fn, 32, mode)
    data, scale = mxfp8_quantize(x, scaling=scaling)
    testing.assert_equal(scale, want_scale.view(torch.uint8), "scale")
    finite = (scale != 255).repeat_interleave(32, 1)  # what a NaN block holds is nobody's convention
    testing.assert_equal(data[finite], want_data.view(torch.uint8)[finite], "data")


@pytest.mark.parametrize("scaling", SCALINGS)
def test_results_do_not_depend_on_the_thread_count(scaling):
    x, threads = wide(100, 300), torch.get_num_threads()
    try:
        results = []
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(mxfp8_quantize(x, scaling=scaling))
    finally:
        torch.set_num_threads(threads)
    for a, b in zip(*results, strict=True):
        testing.assert_equal(a, b)


def test_default_is_rceil():
    x = torch.full((1, 32), 449.0)
    assert mxfp8_quantize(x)[1].item() == 128


def test_quantizing_what_was_dequantized_changes_nothing():
    x = wide(20, 96)
    data, scale = mxfp8_quantize(x)
    again = mxfp8_quantize(mxfp8_dequantize(data, scale, dtype=torch.float32))
    testing.assert_equal(
        mxfp8_dequantize(*again, dtype=torch.float32), mxfp8_dequantize(data, scale, dtype=torch.float32)
    )
