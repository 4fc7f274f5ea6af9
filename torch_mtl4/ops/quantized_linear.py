"""A linear layer on weights of 4 or 8 bits, as a kernel made by `torch_mtl4.metal_kernel`: one for each format."""

import functools

import torch
from torch import Tensor

from torch_mtl4 import _metal_sources
from torch_mtl4.formats import FORMATS, BlockFormat
from torch_mtl4.ops import _checks as check
from torch_mtl4.ops._autocast import effective_dtype
from torch_mtl4.ops._errors import expected

OP = "quantized_linear"
MANY_ROWS = 8
_MSL_NAMES = {"mxfp4": "Mxfp4", "int4": "Int4", "int8": "Int8"}
_SIMDGROUPS = 8
_BYTES_AT_ONCE = 16


def quantized_linear(x: Tensor, weight: Tensor, weight_scale: Tensor, *, format: str, block: int) -> Tensor:
    """A linear layer, without bias, on a weight of one of the formats of torch_mtl4/formats/block.py.

    out = x @ dequantize(weight, weight_scale).T, accumulated in float32

    Differentiable in x; the weight is frozen. Under autocast x is cast to the autocast dtype.

    Args:
        x: [..., K] of dtype float32, bfloat16 or float16; any strides.
        weight: uint8 [N, K], or [N, ceil(K / 2)] for the formats of 4 bits, the even element in the low half.
        weight_scale: [N, ceil(K / block)], uint8 (e8m0) for "mxfp4", else float32, bfloat16 or float16.
        format: "mxfp4", "int4" or "int8".
        block: elements that share a scale: a multiple of those in 16 bytes (32 of 4 bits, 16 of 8), or 0 for a row.

    Returns:
        [..., N] of x's dtype, contiguous.

    Raises:
        TypeError: an argument that is no tensor or of the wrong dtype.
        ValueError: a shape, device, format or block that does not fit.
        NotImplementedError: float64.

    Source: see torch_mtl4/formats/block.py.
    """
    check.tensor(OP, "x", x)
    x = x.to(effective_dtype(x))
    check.float_dtype(OP, "x", x.dtype)
    known = check_format(OP, format)
    check_block(OP, known, block)
    _check_weight(x, weight, weight_scale, known, block)
    *rows, k = x.shape
    out_features = weight.shape[0]
    flat = x.reshape(-1, k)
    if flat.shape[0] == 0 or out_features == 0 or k == 0:
        return x.new_zeros(*rows, out_features)
    one = isinstance(flat.shape[0], int) and flat.shape[0] == 1
    weight, weight_scale = weight.contiguous(), weight_scale.contiguous()
    aligned = weight.shape[1] % _BYTES_AT_ONCE == 0 and weight.storage_offset() % _BYTES_AT_ONCE == 0
    out = kernel(known.name, 1 if one else MANY_ROWS)(flat, weight, weight_scale, block, aligned)
    return out.reshape(*rows, out_features)


def check_format(where: str, format: str) -> BlockFormat:
    """The format of that name, or an error of a caller named `where`."""
    if not isinstance(format, str) or format not in FORMATS:
        expected(ValueError, where, f"format one of {', '.join(map(repr, FORMATS))}", repr(format))
    return FORMATS[format]


def check_block(where: str, format: BlockFormat, block: int) -> None:
    """Raises unless the kernels know blocks of that size."""
    at_once = _BYTES_AT_ONCE * format.per_byte
    if isinstance(block, bool) or not isinstance(block, int):
        expected(TypeError, where, "block an int", type(block).__name__)
    if block < 0 or block % at_once:
        expected(ValueError, where, f"block a multiple of {at_once} for {format.name}, or 0 for a row", block)


def _check_weight(x: Tensor, weight: Tensor, scale: Tensor, format: BlockFormat, block: int) -> None:
    if x.ndim < 1:
        expected(ValueError, OP, "x [..., K]", check.shape(x))
    k = x.shape[-1]
    for name, t in (("weight", weight), ("weight_scale", scale)):
        check.tensor(OP, name, t)
        check.same_device(OP, name, t, "x", x.device)
    if weight.dtype != torch.uint8:
        expected(TypeError, OP, "weight of dtype uint8", weight.dtype)
    if weight.ndim != 2 or weight.shape[1] != format.data_shape(k)[0]:
        expected(ValueError, OP, f"weight [N, {check.known(format.data_shape(k)[0])}]", check.shape(weight))
    allowed = check.FLOATS if format.scale_dtype is None else (format.scale_dtype,)
    if scale.dtype not in allowed:
        wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in allowed)
        expected(TypeError, OP, f"weight_scale of dtype {wanted} for {format.name}", scale.dtype)
    sizes = format.scale_shape(weight.shape[0], k, block=block)
    if tuple(scale.shape) != sizes:
        expected(ValueError, OP, f"weight_scale {[check.known(n) for n in sizes]}", check.shape(scale))


@functools.cache
def kernel(format: str, rows: int):
    """The MetalKernel of a format that takes `rows` rows of x at a time."""
    from torch_mtl4.custom import metal_kernel

    known = FORMATS[format]
    columns = _SIMDGROUPS * (2 if rows > 1 else 4)

    def reference(x: Tensor, weight: Tensor, scale: Tensor, block: int, aligned: bool) -> Tensor:
        return (x.float() @ known.dequantize(weight, scale, x.shape[-1], block).t()).to(x.dtype)

    def backward(grad, x, weight, scale, block, aligned, out):
        values = known.dequantize(weight, scale, x.shape[-1], block)
        return (grad.float() @ values).to(grad.dtype), None, None

    return metal_kernel(
        f"{OP}_{format}_{rows}",
        ["x", "weight", "scale", "block", "aligned"],
        ["out"],
        f"""
        quantized_linear<{_MSL_NAMES[format]}, {rows}>(
            operand<T, 2>(x), operand<uchar, 2>(weight), operand<S, 2>(scale), operand<T, 2>(out), block, aligned,
            group, simdgroup, lane);
        """,
        reference,
        grid=lambda x, weight, **_: (-(-weight.shape[0] // columns) * 32 * _SIMDGROUPS, -(-x.shape[0] // rows)),
        threadgroup=(32 * _SIMDGROUPS,),
        thread_parameters={
            "group": "uint2 threadgroup_position_in_grid",
            "simdgroup": "uint simdgroup_index_in_threadgroup",
            "lane": "uint thread_index_in_simdgroup",
        },
        output_shapes=lambda x, weight, **_: [(x.shape[0], weight.shape[0])],
        output_dtypes=["x"],
        helpers=_helpers(),
        templates={"x": "T", "scale": "S"},
        backward=backward,
    )  # fmt: skip


@functools.cache
def _helpers() -> str:
    # Headers of the system stand before the namespace that helpers are put in.
    lines = _metal_sources.flattened_file(f"{OP}/kernel.h").splitlines()
    return "\n".join("" if line.startswith("#include <") else line for line in lines)
