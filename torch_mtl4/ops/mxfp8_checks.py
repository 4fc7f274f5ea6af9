"""What the mxfp8 ops accept: called by the public functions and by the fake kernels."""

from typing import Any, NoReturn

import torch
from torch import Tensor

from torch_mtl4.formats.mx import BLOCK_SIZE, ScalingMode
from torch_mtl4.ops import _checks as check
from torch_mtl4.ops._autocast import effective_dtype
from torch_mtl4.ops._checks import known, shape
from torch_mtl4.ops._errors import expected

SCALINGS = tuple(mode.value for mode in ScalingMode)
DATA_DTYPES = (torch.uint8, torch.int8, torch.float8_e4m3fn)
SCALE_DTYPES = (torch.uint8, torch.int8, torch.float8_e8m0fnu)


def check_quantize(x: Tensor, scaling: str, op: str = "mxfp8_quantize") -> None:
    check.tensor(op, "x", x)
    check.float_dtype(op, "x", x.dtype)
    if x.ndim < 1:
        expected(ValueError, op, "x [..., K]", shape(x))
    if not isinstance(scaling, str) or scaling not in SCALINGS:
        error = ValueError if isinstance(scaling, str) else TypeError
        expected(error, op, "scaling 'floor', 'rceil', 'ceil' or 'even'", repr(scaling))
    if x.requires_grad and torch.is_grad_enabled():
        no_gradient(op, "x", "pass x.detach()")


def check_dequantize(data: Tensor, scale: Tensor, dtype: torch.dtype, op: str = "mxfp8_dequantize") -> None:
    check_bytes(op, "data", data, DATA_DTYPES)
    if data.ndim < 1:
        expected(ValueError, op, "data [..., K]", shape(data))
    check_scale(op, "scale", scale, "data", data)
    if not isinstance(dtype, torch.dtype):
        expected(TypeError, op, "dtype a torch.dtype", type(dtype).__name__)
    check.float_dtype(op, "a result", dtype)


def check_linear(
    x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None, op: str = "mxfp8_linear"
) -> None:
    check.tensor(op, "x", x)
    dtype = effective_dtype(x)
    check.float_dtype(op, "x", dtype)
    if x.ndim < 1:
        expected(ValueError, op, "x [..., K]", shape(x))
    check_bytes(op, "weight", weight, DATA_DTYPES)
    check.same_device(op, "weight", weight, "x", x.device)
    k = x.shape[-1]
    if weight.ndim != 2 or weight.shape[1] != k:
        expected(ValueError, op, f"weight [N, K] = [N, {known(k)}]", shape(weight))
    check_scale(op, "weight_scale", weight_scale, "weight", weight)
    if bias is None:
        return
    check.tensor(op, "bias", bias)
    check.same_device(op, "bias", bias, "x", x.device)
    if effective_dtype(bias) != dtype:
        expected(TypeError, op, f"bias of x's dtype {dtype}", bias.dtype)
    if bias.ndim != 1 or bias.shape[0] != weight.shape[0]:
        expected(ValueError, op, f"bias [N] = [{known(weight.shape[0])}]", shape(bias))


def check_scale(op: str, name: str, scale: Any, owner: str, data: Tensor) -> None:
    check_bytes(op, name, scale, SCALE_DTYPES)
    check.same_device(op, name, scale, owner, data.device)
    *rows, k = data.shape
    sizes = [*rows, (k + BLOCK_SIZE - 1) // BLOCK_SIZE]
    if scale.ndim != data.ndim or any(scale.shape[i] != size for i, size in enumerate(sizes)):
        layout = "[N, ceil(K/32)]" if data.ndim == 2 else "[..., ceil(K/32)]"
        expected(ValueError, op, f"{name} {layout} = {[known(n) for n in sizes]}", shape(scale))


def check_bytes(op: str, name: str, t: Any, dtypes: tuple[torch.dtype, ...]) -> None:
    check.tensor(op, name, t)
    if t.dtype not in dtypes:
        expected(TypeError, op, f"{name} of dtype uint8, int8 or {str(dtypes[2])[6:]}", t.dtype)
    if t.requires_grad and torch.is_grad_enabled():
        no_gradient(op, name, "the quantized weight is frozen")


def no_gradient(op: str, name: str, advice: str) -> NoReturn:
    expected(NotImplementedError, op, f"{name} without a gradient, which bytes cannot carry ({advice})",
             f"{name}.requires_grad = True")  # fmt: skip
