"""The mxfp8 ops in the IR of Core AI. Kernels work on rows: every rank becomes two dimensions, which moves nothing."""

import functools
import json

import torch

from torch_mtl4 import _ops
from torch_mtl4.export.coreai import references
from torch_mtl4.export.coreai.context import EmittedKernel, Launch, Slot
from torch_mtl4.export.coreai.emit import Operand
from torch_mtl4.export.coreai.lowering import LoweredNode, ceil_div, example, largest, product
from torch_mtl4.export.coreai.msl_text import MSL_TYPES, kernel_text

# Kernels of metal/mxfp8_linear by the name that the plan gives them, and the structs of its coreai.h.
_LINEAR_ENTRIES = {
    "mxfp8_gemv": "CoreAiGemv",
    "mxfp8_simdgroup": "CoreAiSimdgroup",
    "mxfp8_tensor_ops": "CoreAiTensorOps",
    "mxfp8_scale_planes": "CoreAiScalePlanes",
}
_MOST_ROWS = 4096  # more of them do not change the plan
_TILE_COLUMNS, _GEMV_SIMDGROUPS = 64, 8


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
    scale = example((n, -(-k // 32)), torch.uint8)
    plan = json.loads(_ops.mxfp8_linear_plan(x, weight, scale, example((n,), dtype) if has_bias else None, caps))
    (step,) = plan["passes"]
    family, rows, _ = step["kernel"].rsplit("_", 2)
    rows, (threads, _, _) = int(rows), step["threads"]
    constants = {"has_bias": False, "aligned": False, "split": 1} | {name: v for _, name, v in step["constants"]}
    columns = _TILE_COLUMNS
    if family == "mxfp8_gemv":
        columns = _GEMV_SIMDGROUPS // constants["split"] * (2 if rows > 4 else 4)

    slots = [Slot("x", dtype, 2), Slot("weight", torch.uint8, 2), Slot("scale", torch.uint8, 2), Slot("bias", dtype, 1)]
    given, out = [True, True, True, has_bias], Slot("out", dtype, 2)
    entry = f"{_LINEAR_ENTRIES[family]}<{MSL_TYPES[dtype]}, {rows}>"
    name, text = kernel_text("mxfp8_linear", entry, constants, [*zip(slots, given, strict=True), (out, True)], threads)

    def launch(shapes) -> Launch:
        (m, _), (n, _) = shapes[:2]
        return Launch((ceil_div(n, columns) * threads, ceil_div(m, rows), 1), (threads, 1, 1), ((m, n),))

    operands = tuple(slot for slot, there in zip(slots, given, strict=True) if there)
    return EmittedKernel("mxfp8_linear", name, text, operands, (out,), references.mxfp8_linear, launch)
