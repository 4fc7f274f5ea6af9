"""mxfp8_linear: sizes, strides, what it must not read, numerics, gradients."""

import math

import pytest
import torch
import torch.nn.functional as F

from torch_mtl4 import mxfp8_dequantize, mxfp8_linear, mxfp8_quantize, testing
from torch_mtl4.reference import mxfp8 as reference

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROWS = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 130]


def quantized(n, k, seed=1, layout="poisoned"):
    """weight and weight_scale of a layer, laid out in poison."""
    return (testing.lay_out(t, layout) for t in mxfp8_quantize(testing.randn(n, k, seed=seed) / max(k, 1) ** 0.5))


def check(x, weight, weight_scale, bias=None):
    """Compares with the reference in float64; PyTorch's own error is that of F.linear on the dequantized weight."""
    out = mxfp8_linear(x, weight, weight_scale, bias)
    double_bias = None if bias is None else bias.double()
    want = reference.mxfp8_linear(x.double(), weight, weight_scale, double_bias)
    baseline = F.linear(x, mxfp8_dequantize(weight, weight_scale, dtype=x.dtype), bias)
    rounded = mxfp8_dequantize(weight, weight_scale, dtype=x.dtype).double()
    error = testing.error_of(baseline, F.linear(x.double(), rounded, double_bias))
    assert out.dtype == x.dtype and out.is_contiguous()
    testing.assert_close(out, want, testing.allowed_error(error, want, x.dtype))
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize("n,k", [(48, 128), (17, 96), (33, 100)])
def test_rows(m, n, k, dtype):
    bias = testing.lay_out(testing.randn(n, dtype=dtype, seed=2), "gapped")
    check(testing.lay_out(testing.randn(m, k, dtype=dtype), "poisoned"), *quantized(n, k), bias)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2, 5, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 255, 257, 1000])
@pytest.mark.parametrize("m", [1, 5, 40])
def test_inner_sizes(m, k, dtype):
    check(testing.lay_out(testing.randn(m, k, dtype=dtype), "poisoned"), *quantized(20, k))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129])
@pytest.mark.parametrize("m", [1, 6, 33])
def test_outer_sizes(m, n, dtype):
    check(testing.randn(m, 64, dtype=dtype), *quantized(n, 64))


@pytest.mark.parametrize("n,m", [(73448, 1), (73448, 16), (73448, 31), (64, 40001)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_edges_beyond_16_bits(m, n, dtype):
    weight = mxfp8_quantize(testing.randn(n, 64) / 8)
    x = testing.randn(m, 64, dtype=dtype)
    check(x, *weight)


@pytest.mark.parametrize("shape", [(256,), (1, 256), (15, 256), (3, 5, 256), (2, 1, 256), (4, 2, 3, 256)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_leading_dimensions_equal_the_flattened_call(shape, dtype):
    x = testing.randn(*shape, dtype=dtype)
    weight, scale = quantized(96, 256)
    out = mxfp8_linear(x, weight, scale)
    assert out.shape == (*shape[:-1], 96)
    testing.assert_equal(out.reshape(-1, 96), mxfp8_linear(x.reshape(-1, 256), weight, scale))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", testing.LAYOUTS)
@pytest.mark.parametrize("m", [1, 12])
def test_any_strides_of_x(m, layout, dtype):
    x = testing.randn(3, m, 70, dtype=dtype)
    weight, scale = quantized(40, 70)
    testing.assert_equal(
        mxfp8_linear(testing.lay_out(x, layout), weight, scale), mxfp8_linear(x.contiguous(), weight, scale)
    )


def test_batch_and_sequence_swapped():
    x = testing.randn(5, 3, 256).transpose(0, 1)
    weight, scale = quantized(96, 256)
    testing.assert_equal(mxfp8_linear(x, weight, scale), mxfp8_linear(x.contiguous(), weight, scale))


@pytest.mark.parametrize("weight_layout", testing.LAYOUTS)
@pytest.mark.parametrize("scale_layout", testing.LAYOUTS)
@pytest.mark.parametrize("m", [1, 20])
def test_any_strides_of_the_weight(m, weight_layout, scale_layout):
    weight, scale = mxfp8_quantize(testing.randn(40, 70))
    x = testing.randn(m, 70, dtype=torch.bfloat16)
    got = mxfp8_linear(x, testing.lay_out(weight, weight_layout), testing.lay_out(scale, scale_layout))
    testing.assert_equal(got, mxfp8_linear(x, weight, scale))


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("m", [1, 9])
def test_halves_of_a_fused_weight(half, m):
    data, scale = mxfp8_quantize(testing.randn(2, 64, 96))
    rows = slice(32 * half, 32 * half + 32)
    x = testing.randn(m, 96)
    for expert in (0, 1):
        want = x.double() @ reference.mxfp8_dequantize(data, scale, dtype=torch.float64)[expert, rows].mT
        got = mxfp8_linear(x, data[expert, rows], scale[expert, rows])
        testing.assert_close(got, want, testing.allowed_error(testing.error_of(want.float(), want), want, x.dtype))


@pytest.mark.cpu_only  # bits: another N may take another order of adding elsewhere
@pytest.mark.parametrize("m", [1, 3, 20])
@pytest.mark.parametrize("dtype", DTYPES)
def test_padding_of_the_scale_and_rows_behind_the_last_are_not_read(m, dtype):
    weight, scale = mxfp8_quantize(testing.randn(17, 96))
    x = testing.randn(m, 96, dtype=dtype)
    want = mxfp8_linear(x, weight, scale)
    padded = torch.full((128, 4), 255, dtype=torch.uint8)
    padded[:17, :3] = scale
    testing.assert_equal(mxfp8_linear(x, weight, padded[:17, :3]), want)
    more_weight = torch.cat([weight, torch.full((5, 96), 0x7F, dtype=torch.uint8)])
    more_scale = torch.cat([scale, torch.full((5, 3), 255, dtype=torch.uint8)])
    more = mxfp8_linear(x, more_weight, more_scale)
    testing.assert_equal(more[:, :17], want)
    assert more[:, 17:].isnan().all()


@pytest.mark.parametrize("m", [1, 20])
def test_bytes_behind_a_short_row_are_not_read(m):
    weight, scale = mxfp8_quantize(testing.randn(9, 40))
    buffer = torch.full((9, 64), 0x7F, dtype=torch.uint8)
    buffer[:, :40] = weight
    x = testing.poison(m, 64, dtype=torch.float32)
    x[:, :40] = testing.randn(m, 40)
    testing.assert_equal(
        mxfp8_linear(x[:, :40], buffer[:, :40], scale), mxfp8_linear(x[:, :40].contiguous(), weight, scale)
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m,n,k", [(0, 5, 64), (3, 0, 64), (3, 5, 0), (0, 0, 0)])
def test_empty_sizes(m, n, k, dtype):
    weight, scale = mxfp8_quantize(testing.randn(n, k))
    bias = testing.randn(n, dtype=dtype)
    x = testing.randn(m, k, dtype=dtype).requires_grad_()
    out = mxfp8_linear(x, weight, scale, bias)
    assert out.shape == (m, n)
    if k == 0:
        testing.assert_equal(out.detach(), bias.expand(m, n))
        assert (mxfp8_linear(x, weight, scale) == 0).all()
    out.sum().backward()
    assert (x.grad == 0).all() and x.grad.shape == (m, k)


# Numerics.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 33])
def test_every_scale_byte(m, dtype):
    scale = torch.arange(256).to(torch.uint8)[:, None]
    weight = torch.full((256, 32), 0x38, dtype=torch.uint8)  # 1.0
    out = mxfp8_linear(torch.ones(m, 32, dtype=dtype), weight, scale).expand(m, 256)
    exact = (32 * scale.view(torch.float8_e8m0fnu).double()).flatten().expand(m, 256)
    testing.assert_equal(out.contiguous(), exact.to(dtype).contiguous())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 33])
def test_every_code(m, dtype):
    weight = torch.arange(256).to(torch.uint8)[:, None]
    scale = torch.full((256, 1), 127, dtype=torch.uint8)
    out = mxfp8_linear(torch.ones(m, 1, dtype=dtype), weight, scale)
    testing.assert_close(out, mxfp8_dequantize(weight, scale, dtype=dtype).T.expand(m, 256), 0.0)  # but for -0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 4, 33])
@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e3])
def test_tiny_and_large_values_do_not_drop_out(size, m, dtype):
    weight, scale = mxfp8_quantize(testing.randn(48, 128, seed=1) * size)
    x = (testing.randn(m, 128) * min(size, 1)).to(dtype)
    check(x, weight, scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 5, 40])
def test_blocks_of_very_different_scales(m, dtype):
    weight = torch.ldexp(testing.randn(40, 256), torch.arange(8).mul(3).sub(12).repeat_interleave(32))
    check(testing.randn(m, 256, dtype=dtype), *mxfp8_quantize(weight))


@pytest.mark.parametrize("m", [1, 5, 40])
def test_scales_whose_products_leave_float32_midway(m):
    # 2^-127 * 448 * 2^127 is 448: no intermediate may overflow or flush.
    weight = torch.full((3, 64), 0x7E, dtype=torch.uint8)
    scale = torch.tensor([[0, 0], [127, 0], [254, 0]], dtype=torch.uint8)
    x = torch.zeros(m, 64)
    x[:, 5], x[:, 40] = 2.0**-20, 2.0**100
    out = mxfp8_linear(x, weight, scale).double()
    want = torch.tensor([448 * 2.0**-27, 448 * 2.0**-20 + 448 * 2.0**-27, 448 * 2.0**107]).double().expand(m, 3)
    testing.assert_close(out, want, 0.0)


@pytest.mark.cpu_only  # bits: as above
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 3, 20])
def test_nan_stays_in_its_row_and_column(m, dtype):
    weight, scale = mxfp8_quantize(testing.randn(20, 96))
    x = testing.randn(m, 96, dtype=dtype)
    clean = mxfp8_linear(x, weight, scale)
    scale[7, 1] = 255
    weight[11, 50] = 0xFF
    x[m - 1, 3] = math.nan
    out = mxfp8_linear(x, weight, scale)
    assert out[m - 1].isnan().all() and out[:, [7, 11]].isnan().all()
    kept = [n for n in range(20) if n not in (7, 11)]
    testing.assert_equal(out[: m - 1][:, kept], clean[: m - 1][:, kept])


def test_inf_in_x():
    weight, scale = mxfp8_quantize(torch.ones(2, 32))
    x = torch.ones(1, 32)
    x[0, 4] = math.inf
    assert (mxfp8_linear(x, weight, scale) == math.inf).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 16, 100])
def test_results_do_not_depend_on_the_thread_count(m, dtype):
    x = testing.randn(m, 256, dtype=dtype)
    weight, scale = quantized(100, 256)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            results.append(mxfp8_linear(x, weight, scale))
    finally:
        torch.set_num_threads(threads)
    for result in results[1:]:
        testing.assert_equal(result, results[0])


def test_a_large_layer():
    check(testing.randn(65, 1024, dtype=torch.bfloat16), *quantized(1030, 1024))


# The bytes under another name.


@pytest.mark.parametrize("weight_dtype", [torch.uint8, torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("scale_dtype", [torch.uint8, torch.int8, torch.float8_e8m0fnu])
@pytest.mark.parametrize("layout", ["dense", "poisoned", "transposed"])
def test_bytes_under_another_name(layout, weight_dtype, scale_dtype):
    weight, scale = mxfp8_quantize(testing.randn(12, 96) * 1e6)
    x = testing.randn(4, 96)
    got = mxfp8_linear(
        x, testing.lay_out(weight, layout).view(weight_dtype), testing.lay_out(scale, layout).view(scale_dtype)
    )
    testing.assert_equal(got, mxfp8_linear(x, weight, scale))


# Gradients.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(70,), (5, 70), (2, 3, 70)])
@pytest.mark.parametrize("grad_layout", testing.LAYOUTS)
def test_gradients_of_x_and_bias(shape, grad_layout, dtype):
    weight, scale = quantized(40, 70)
    x, bias = (
        testing.randn(*shape, dtype=dtype).requires_grad_(),
        testing.randn(40, dtype=dtype, seed=2).requires_grad_(),
    )
    grad = testing.randn(*shape[:-1], 40, dtype=dtype, seed=3)
    got = torch.autograd.grad(mxfp8_linear(x, weight, scale, bias), (x, bias), testing.lay_out(grad, grad_layout))
    exact = reference.mxfp8_dequantize(weight, scale, dtype=torch.float64)
    want = grad.double() @ exact, grad.double().reshape(-1, 40).sum(0)
    baseline = torch.autograd.grad(F.linear(x, exact.to(dtype), bias), (x, bias), grad)
    for name, a, b, c in zip(("x", "bias"), got, want, baseline, strict=True):
        testing.assert_close(a, b, testing.allowed_error(testing.error_of(c, b), b, dtype), f"gradient of {name}")


@pytest.mark.parametrize("wanted", ["x", "bias"])
def test_only_one_gradient_is_wanted(wanted):
    weight, scale = quantized(8, 64)
    x, bias = testing.randn(3, 64), testing.randn(8)
    leaf = (x if wanted == "x" else bias).requires_grad_()
    mxfp8_linear(x, weight, scale, bias).sum().backward()
    assert leaf.grad is not None


def test_gradient_of_an_expanded_sum():
    weight, scale = quantized(8, 64)
    x = testing.randn(3, 64).requires_grad_()
    mxfp8_linear(x, weight, scale).sum().backward()
    want = reference.mxfp8_dequantize(weight, scale, dtype=torch.float64).sum(0).expand(3, 64)
    testing.assert_close(x.grad, want, testing.allowed_error(testing.error_of(want.float(), want), want, torch.float32))


def test_small_scales_keep_their_gradient_in_float16():
    weight, scale = mxfp8_quantize(torch.full((4, 32), 2.0**-24))
    x = torch.ones(1, 32, dtype=torch.float16, requires_grad=True)
    (mxfp8_linear(x, weight, scale) * 1024).sum().backward()
    testing.assert_equal(x.grad, torch.full((1, 32), 2.0**-12, dtype=torch.float16))


def test_second_derivative():
    weight, scale = quantized(8, 64)
    x = testing.randn(3, 64).requires_grad_()
    (grad,) = torch.autograd.grad(mxfp8_linear(x, weight, scale).sin().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    dense = reference.mxfp8_dequantize(weight, scale, dtype=torch.float64)
    double = x.detach().double().requires_grad_()
    (grad,) = torch.autograd.grad((double @ dense.mT).sin().sum(), double, create_graph=True)
    (want,) = torch.autograd.grad(grad.sum(), double)
    baseline = x.detach().requires_grad_()
    (grad,) = torch.autograd.grad((baseline @ dense.float().mT).sin().sum(), baseline, create_graph=True)
    (own,) = torch.autograd.grad(grad.sum(), baseline)
    testing.assert_close(second, want, testing.allowed_error(testing.error_of(own, want), want, torch.float32))
