"""The mxfp8 ops in the IR of Core AI. Kernels work on rows: every rank becomes two dimensions, which moves nothing."""

import functools
import json

import torch

from torch_mtl4 import _ops
from torch_mtl4.export.coreai import references
from torch_mtl4.export.coreai.context import EmittedKernel, Launch, Slot
from torch_mtl4.export.coreai.emit import Operand
from torch_mtl4.export.coreai.lowering import LoweredNode, ceil_div, example, largest, product
from torch_mtl4.export.coreai.msl_text import MSL_TYPES, kernel_text, literal

# Kernels of metal/mxfp8_linear by the name that the plan gives them, and the structs of its coreai.h.
_LINEAR_ENTRIES = {
    "mxfp8_gemv": "CoreAiGemv",
    "mxfp8_simdgroup": "CoreAiSimdgroup",
    "mxfp8_tensor_ops": "CoreAiTensorOps",
    "mxfp8_scale_planes": "CoreAiScalePlanes",
}
_MOST_ROWS = 4096  # more of them do not change the plan
_TILE_COLUMNS = 64
_BLOCK = 32
_QUANTIZED_AT_ONCE, _DEQUANTIZED_AT_ONCE = 4, 8  # by a thread


def lower_linear(node: LoweredNode) -> list[Operand]:
    x, weight, scale, bias = (node.operand(name) for name in ("x", "weight", "weight_scale", "bias"))
    node.check_not_empty(x=x, weight=weight)
    rows = product(x.shape[:-1])
    kernel = linear_kernel(x.dtype, largest(rows, _MOST_ROWS), *weight.shape, bias is not None, node.emission.caps)
    (out,) = node.call(kernel, node.reshape(x, (rows, x.shape[-1])), weight, scale, bias)
    return [node.reshape(out, (*x.shape[:-1], weight.shape[0]))]


@functools.lru_cache(maxsize=256)
def linear_kernel(dtype: torch.dtype, m: int, n: int, k: int, has_bias: bool, caps: str) -> EmittedKernel:
    """The kernel that the plan chooses for x [m, k]; it takes any number of rows."""
    if dtype != torch.float16:
        # Scale planes take halves. From bfloats the plan makes halves first, in passes that write to the same memory,
        # and kernels of Core AI give only new results.
        caps = " ".join(word for word in caps.split() if word != "scale_planes")
    x, weight = example((m, k), dtype), example((n, k), torch.uint8)
    scale = example((n, ceil_div(k, _BLOCK)), torch.uint8)
    plan = json.loads(_ops.mxfp8_linear_plan(x, weight, scale, example((n,), dtype) if has_bias else None, caps))
    (step,) = plan["passes"]
    family, rows, _ = step["kernel"].rsplit("_", 2)
    rows, (threads, _, _) = int(rows), step["threads"]
    constants = {"has_bias": False, "aligned": False, "split": 1} | {name: v for _, name, v in step["constants"]}
    columns = _TILE_COLUMNS
    if family == "mxfp8_gemv":
        columns = threads // 32 // constants["split"] * (2 if rows > 4 else 4)

    slots = [Slot("x", dtype, 2), Slot("weight", torch.uint8, 2), Slot("scale", torch.uint8, 2), Slot("bias", dtype, 1)]
    given, out = [True, True, True, has_bias], Slot("out", dtype, 2)
    entry = f"{_LINEAR_ENTRIES[family]}<{MSL_TYPES[dtype]}, {rows}>"
    name, text = kernel_text("mxfp8_linear", entry, constants, [*zip(slots, given, strict=True), (out, True)], threads)

    def launch(shapes) -> Launch:
        (m, _), (n, _) = shapes[:2]
        return Launch((ceil_div(n, columns) * threads, ceil_div(m, rows), 1), (threads, 1, 1), ((m, n),))

    operands = tuple(slot for slot, there in zip(slots, given, strict=True) if there)
    return EmittedKernel("mxfp8_linear", name, text, operands, (out,), references.mxfp8_linear, launch)


def lower_quantize(node: LoweredNode) -> list[Operand]:
    x = node.operand("x")
    node.check_not_empty(x=x)
    *rows, k = x.shape
    kernel = quantize_kernel(x.dtype, node.known("rows", k), node.number("scaling"), node.emission.caps)
    data, scale = node.call(kernel, node.reshape(x, (product(rows), k)))
    return [node.reshape(data, x.shape), node.reshape(scale, (*rows, ceil_div(k, _BLOCK)))]


def lower_dequantize(node: LoweredNode) -> list[Operand]:
    data, scale = node.operand("data"), node.operand("scale")
    node.check_not_empty(data=data)
    *rows, k = data.shape
    kernel = dequantize_kernel(node.number("dtype"), node.known("rows", k), node.emission.caps)
    count = product(rows)
    (out,) = node.call(kernel, node.reshape(data, (count, k)), node.reshape(scale, (count, ceil_div(k, _BLOCK))))
    return [node.reshape(out, data.shape)]


@functools.lru_cache(maxsize=64)
def quantize_kernel(dtype: torch.dtype, k: int, scaling: str, caps: str) -> EmittedKernel:
    """The kernel for rows of k values; it takes any number of rows."""
    plan = _ops.mxfp8_quantize_plan(example((1, k), dtype), scaling, caps)
    data, scale = Slot("data", torch.uint8, 2), Slot("scale", torch.uint8, 2)
    reference = functools.partial(references.mxfp8_quantize, scaling=scaling)
    return _codec("mxfp8_quantize", "CoreAiQuantize", plan, dtype, k, _QUANTIZED_AT_ONCE, (Slot("x", dtype, 2),),
                  (data, scale), reference)  # fmt: skip


@functools.lru_cache(maxsize=64)
def dequantize_kernel(dtype: torch.dtype, k: int, caps: str) -> EmittedKernel:
    """The kernel for rows of k codes; it takes any number of rows."""
    data, scale = example((1, k), torch.uint8), example((1, ceil_div(k, _BLOCK)), torch.uint8)
    plan = _ops.mxfp8_dequantize_plan(data, scale, dtype, caps)
    operands = Slot("data", torch.uint8, 2), Slot("scale", torch.uint8, 2)
    reference = functools.partial(references.mxfp8_dequantize, dtype=dtype)
    return _codec("mxfp8_dequantize", "CoreAiDequantize", plan, dtype, k, _DEQUANTIZED_AT_ONCE, operands,
                  (Slot("out", dtype, 2),), reference)  # fmt: skip


def _codec(op, struct, plan: str, dtype, k: int, at_once: int, operands, results, reference) -> EmittedKernel:
    (step,) = json.loads(plan)["passes"]
    threads, whole = tuple(step["threads"]), k % _BLOCK == 0
    constants = {name: value for _, name, value in step["constants"]}
    entry = f"{struct}<{MSL_TYPES[dtype]}, {literal(whole)}>"
    slots = [(slot, True) for slot in (*operands, *results)]
    name, text = kernel_text(op, entry, constants, slots, threads[0] * threads[1])

    def launch(shapes) -> Launch:
        rows, k = shapes[0]
        across, down = (rows * k, 1) if whole else (k, rows)
        groups = ceil_div(across, threads[0] * at_once), ceil_div(down, threads[1])
        sizes = {"x": (rows, k), "data": (rows, k), "out": (rows, k), "scale": (rows, ceil_div(k, _BLOCK))}
        grid = (groups[0] * threads[0], groups[1] * threads[1], 1)
        return Launch(grid, threads, tuple(sizes[slot.name] for slot in results))

    return EmittedKernel(op, name, text, operands, results, reference, launch)
