"""mxfp8_linear on the MSL runner, with results that are known exactly: what several test files share.

With small integers for elements and powers of two for scales no sum rounds in float32, so a result has one right value
on every tier.
"""

import torch
import torch.nn.functional as F

from torch_mtl4 import mxfp8_dequantize, mxfp8_linear, mxfp8_quantize, testing
from torch_mtl4.msl_backend import emulated
from torch_mtl4.reference import mxfp8 as reference
from torch_mtl4.testing import exact_layer, exact_x, integers

ONE, TWO_TO_MINUS_9, MOST = 0x38, 0x01, 0x7E  # e4m3 codes


def run(caps, x, weight, scale, bias=None, **options):
    """The result, and the kernels that made it."""
    with emulated(caps, **options) as emulation:
        out = mxfp8_linear(x, weight, scale, bias)
    return out, [name for name, _ in emulation.dispatches]


def check_exact(caps, m, n, k, dtype, memory="poisoned", bias=True, kernel="", lay_out=testing.lay_out, **options):
    weight, scale, values = exact_layer(n, k)
    x, b = exact_x(m, k, dtype), integers(-9, 9, (n,), 4).to(dtype)
    tensors = [lay_out(t, memory) for t in (x, weight, scale, b)]
    want = (x.double() @ values.T + (b.double() if bias else 0)).to(dtype)
    got, kernels = run(caps, *tensors[: 4 if bias else 3], **options)
    testing.assert_equal(got, want, f"M, N, K = {m, n, k}, {dtype}, {memory}, {kernels}")
    assert not kernels or any(kernel in name for name in kernels), kernels


def check_every_scale_byte(caps, dtype, m, exponent, k=96):
    """255 rows of the weight; that of byte b has blocks of scale b and 127, and elements at both ends of the format."""
    scale = torch.full((255, k // 32), 127, dtype=torch.uint8)
    scale[:, 1] = torch.arange(255)
    weight = torch.zeros(255, k, dtype=torch.uint8)
    weight[:, 40], weight[:, 50] = MOST, TWO_TO_MINUS_9
    x = torch.zeros(m, k, dtype=dtype)
    x[:, 40] = 2.0**exponent
    x[1:, 50] = x[1:, 40]
    values = torch.exp2(scale[:, 1].double() - 127 + exponent)
    want = torch.stack([448 * values, 448 * values + 2.0**-9 * values]).to(torch.float32).to(dtype)
    got, kernels = run(caps, x, weight, scale, checked=False)
    for row, line in ((0, want[0]), (m - 1, want[1])):
        testing.assert_equal(got[row], line, f"{caps}, {dtype}, M = {m}, x = 2^{exponent}, row {row}, {kernels}")


def check_nan_and_inf_stay_in_their_rows(caps, dtype, m, k=200):
    weight, scale, values = exact_layer(60, k)
    weight[2, 0], weight[33, k - 1], weight[59, 64] = 0x7F, 0xFF, 0x7F
    scale[7, 0], scale[30, -1] = 255, 255
    x = exact_x(m, k, dtype)
    x[0, 3], x[2, k - 2] = torch.inf, torch.nan
    want = (x.double() @ values.T).to(dtype)
    want[:, [2, 7, 30, 33, 59]] = torch.nan
    testing.assert_equal(run(caps, x, weight, scale, checked=False)[0], want)


def check_normal_values(caps, dtype, m, n, k, kernel):
    """Under the tolerance policy; PyTorch's own error is that of F.linear on the dequantized weight."""
    x, bias = testing.randn(m, k, dtype=dtype), testing.randn(n, dtype=dtype, seed=2)
    weight, scale = mxfp8_quantize(testing.randn(n, k, seed=1) / k**0.5)
    got, kernels = run(caps, x, weight, scale, bias, checked=False)
    assert any(kernel in name for name in kernels), kernels
    want = reference.mxfp8_linear(x.double(), weight, scale, bias.double())
    values = mxfp8_dequantize(weight, scale, dtype=dtype)
    error = testing.error_of(F.linear(x, values, bias), F.linear(x.double(), values.double(), bias.double()))
    testing.assert_close(got, want, testing.allowed_error(error, want, dtype), f"{caps}, {dtype}, {kernels}")
