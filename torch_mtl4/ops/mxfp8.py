"""torch_mtl4.mxfp8_*: the functions, their checks, fake kernels and gradients."""

import torch
from torch import Tensor

from torch_mtl4 import _ops


def mxfp8_quantize(x: Tensor, *, scaling: str = "rceil") -> tuple[Tensor, Tensor]:
    """Quantizes blocks of 32 along the last dimension to e4m3 elements with one e8m0 scale a block."""
    return _ops.mxfp8_quantize(x, scaling)


def mxfp8_dequantize(data: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    """The values that the bytes stand for."""
    return _ops.mxfp8_dequantize(data.view(torch.uint8), scale.view(torch.uint8), dtype)


def mxfp8_linear(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ dequantize(weight, weight_scale).T + bias."""
    return _ops.mxfp8_linear(x, weight.view(torch.uint8), weight_scale.view(torch.uint8), bias)


@torch.library.register_fake("torch_mtl4::mxfp8_quantize")
def _quantize_fake(x, scaling="rceil"):
    *rows, k = x.shape
    return x.new_empty(x.shape, dtype=torch.uint8), x.new_empty((*rows, (k + 31) // 32), dtype=torch.uint8)


@torch.library.register_fake("torch_mtl4::mxfp8_dequantize")
def _dequantize_fake(data, scale, dtype):
    return data.new_empty(data.shape, dtype=dtype)


@torch.library.register_fake("torch_mtl4::mxfp8_linear")
def _linear_fake(x, weight, weight_scale, bias=None):
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _linear_setup_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[1], inputs[2])


def _linear_backward(ctx, grad):
    weight, weight_scale = ctx.saved_tensors
    grad_x = grad_bias = None
    if ctx.needs_input_grad[0]:
        grad_x = grad @ _ops.mxfp8_dequantize(weight, weight_scale, grad.dtype)
    if any(ctx.needs_input_grad[3:]):
        grad_bias = grad.flatten(0, -2).sum(0)
    return grad_x, None, None, grad_bias


torch.library.register_autograd("torch_mtl4::mxfp8_linear", _linear_backward, setup_context=_linear_setup_context)
