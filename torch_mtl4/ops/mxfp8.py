"""torch_mtl4.mxfp8_*: the functions, their fake kernels and gradients. The checks stand in the file beside this one."""

import torch
from torch import Tensor

from torch_mtl4 import _ops
from torch_mtl4.ops import _autocast
from torch_mtl4.ops._errors import fake_kernel
from torch_mtl4.ops.mxfp8_checks import check_dequantize, check_linear, check_quantize, no_gradient


def mxfp8_quantize(x: Tensor, *, scaling: str = "rceil") -> tuple[Tensor, Tensor]:
    """Quantizes blocks of 32 values along the last dimension to e4m3 elements that share one e8m0 scale.

    data_i = e4m3(x_i / 2^(scale - 127)), to nearest, ties to even, saturating at 448

    The last block of a row is shorter where K is not a multiple of 32; it is scaled as if zeros filled it. A block
    that holds NaN or Inf becomes NaN as a whole: scale 255, elements 0x7F. A block of zeros gets scale 0; the sign of
    a zero is kept. Scale exponents are computed from the exact values, never from a rounded logarithm.

    Args:
        x: [..., K] of dtype float32, bfloat16 or float16; any strides. It may not require grad: bytes carry none.
        scaling: how the scale follows from the block's largest magnitude amax = m * 2^e (1 <= m < 2):
            "rceil": the smallest power of two with amax <= 448 * scale. Never clips.
            "floor": 2^(e - 8), the conversion of the specification. Clips where m > 1.75.
            "ceil": 2^(e - 8), doubled where m > 1. Never clips.
            "even": 2^(e - 8), doubled where m >= 1.9375, that is of amax rounded to e4m3's mantissa.

    Returns:
        data: uint8 [..., K], e4m3 codes; view as torch.float8_e4m3fn to read them as numbers.
        scale: uint8 [..., ceil(K / 32)], e8m0 codes: 2^(code - 127), 255 is NaN.

    Raises:
        TypeError: x that is no floating tensor, scaling that is no string.
        ValueError: x without dimensions, an unknown scaling.
        NotImplementedError: float64; x that requires grad while gradients are recorded.

    Source: OCP Microscaling Formats (MX) Specification v1.0, sections 5.1, 5.3, 5.4.1 and 6.3; "rceil" as in the CUDA
        documentation of block-scaled matrix products (cuBLAS, 1D block quantization).
    """
    check_quantize(x, scaling)
    return _ops.mxfp8_quantize(x, scaling)


def mxfp8_dequantize(data: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    """The values that the bytes stand for.

    x_i = e4m3(data_i) * 2^(scale - 127), rounded once to `dtype`

    Args:
        data: [..., K] e4m3 codes as uint8, int8 or torch.float8_e4m3fn; any strides.
        scale: [..., ceil(K / 32)] e8m0 codes as uint8, int8 or torch.float8_e8m0fnu; any strides.
        dtype: torch.float32, torch.bfloat16 or torch.float16; values outside its range become Inf or 0.

    Returns:
        [..., K] of `dtype`, contiguous. NaN where the element is 0x7F or 0xFF, or its scale 255.

    Raises:
        TypeError: an argument that is no tensor or of the wrong dtype, a dtype that is not floating.
        ValueError: scale of the wrong shape or on another device.
        NotImplementedError: float64; float8 inputs that require grad while gradients are recorded.

    Source: OCP Microscaling Formats (MX) Specification v1.0, sections 5.3 and 5.4.1.
    """
    check_dequantize(data, scale, dtype)
    return _ops.mxfp8_dequantize(_bytes(data), _bytes(scale), dtype)


def mxfp8_linear(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear layer on an mxfp8 weight.

    out = x @ dequantize(weight, weight_scale).T + bias, accumulated in float32

    Differentiable in x and bias; the weight is frozen. Under autocast x and bias are cast to the autocast dtype;
    without it mixed dtypes raise.

    Args:
        x: [..., K] of dtype float32, bfloat16 or float16; any strides.
        weight: [N, K] e4m3 codes as uint8, int8 or torch.float8_e4m3fn; rows may be strided.
        weight_scale: [N, ceil(K / 32)] e8m0 codes as uint8, int8 or torch.float8_e8m0fnu; rows may be strided.
        bias: [N] of x's dtype.

    Returns:
        [..., N] of x's dtype, contiguous.

    Raises:
        TypeError: an argument that is no tensor or of the wrong dtype.
        ValueError: a shape or device that does not fit.
        NotImplementedError: float64; a float8 weight or scale that requires grad while gradients are recorded.

    Source: OCP Microscaling Formats (MX) Specification v1.0, section 6.2 (dot products of blocks).
    """
    check_linear(x, weight, weight_scale, bias)
    return _ops.mxfp8_linear(x, _bytes(weight), _bytes(weight_scale), bias)


def _bytes(t: Tensor) -> Tensor:
    # A view of the same dtype would be one more call in every graph.
    return t if t.dtype == torch.uint8 else t.view(torch.uint8)


@fake_kernel("mxfp8_quantize")
def _quantize_fake(x, scaling="rceil"):
    check_quantize(x, scaling)
    *rows, k = x.shape
    return x.new_empty(x.shape, dtype=torch.uint8), x.new_empty((*rows, (k + 31) // 32), dtype=torch.uint8)


@fake_kernel("mxfp8_dequantize")
def _dequantize_fake(data, scale, dtype):
    check_dequantize(data, scale, dtype)
    return data.new_empty(data.shape, dtype=dtype)


@fake_kernel("mxfp8_linear")
def _linear_fake(x, weight, weight_scale, bias=None):
    check_linear(x, weight, weight_scale, bias)
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _quantize_setup_context(ctx, inputs, output):
    no_gradient("mxfp8_quantize", "x", "pass x.detach()")


def _quantize_backward(ctx, grad_data, grad_scale):
    no_gradient("mxfp8_quantize", "x", "pass x.detach()")


def _linear_setup_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[1], inputs[2])


def _linear_backward(ctx, grad):
    weight, weight_scale = ctx.saved_tensors
    grad_x = grad_bias = None
    if ctx.needs_input_grad[0]:
        # bfloat16 holds every weight that is not tiny exactly; float16's range does not.
        dtype = torch.float32 if grad.dtype == torch.float16 else grad.dtype
        grad_x = (grad.to(dtype) @ _ops.mxfp8_dequantize(weight, weight_scale, dtype)).to(grad.dtype)
    if any(ctx.needs_input_grad[3:]):  # left out where bias is
        grad_bias = grad.reshape(-1, grad.shape[-1]).sum(0)
    return grad_x, None, None, grad_bias


torch.library.register_autograd(
    "torch_mtl4::mxfp8_quantize", _quantize_backward, setup_context=_quantize_setup_context, lib=_ops.LIBRARY
)
torch.library.register_autograd(
    "torch_mtl4::mxfp8_linear", _linear_backward, setup_context=_linear_setup_context, lib=_ops.LIBRARY
)
_autocast.register(_ops.mxfp8_linear, operands=(0, 3))
