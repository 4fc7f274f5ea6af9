"""The ops of this package in the IR of Core AI."""

import functools
from collections.abc import Callable

from torch_mtl4.custom import apple, apple_op
from torch_mtl4.custom.registration import NAMESPACE, kernels
from torch_mtl4.export.coreai import attention, custom, mxfp8, torch_metal_kernel
from torch_mtl4.export.coreai.context import Emission
from torch_mtl4.export.coreai.emit import Operand
from torch_mtl4.export.coreai.lowering import LoweredNode
from torch_mtl4.ops._errors import expected

LOWERINGS: dict[str, Callable[[LoweredNode], list[Operand]]] = {
    "flash_attention": attention.lower,
    "mxfp8_dequantize": mxfp8.lower_dequantize,
    "mxfp8_linear": mxfp8.lower_linear,
    "mxfp8_quantize": mxfp8.lower_quantize,
}


def register(converter, emission: Emission) -> None:
    """Makes a converter of coreai-torch turn our ops, and those of custom kernels, into kernels of Core AI.

    Args:
        converter: a coreai_torch.TorchConverter, before exported programs are added.
        emission: collects the kernels.
    """
    for op, lower in LOWERINGS.items():
        _register(converter, f"torch_mtl4::{op}.default", lower, emission)
    for kernel in kernels().values():
        _register(converter, f"{NAMESPACE}::{kernel.name}.default", functools.partial(custom.lower, kernel), emission)
    for kernel in apple.kernels().values():
        lower = functools.partial(torch_metal_kernel.lower, kernel)
        _register(converter, f"{apple_op.NAMESPACE}::{kernel.name}.default", lower, emission)
    converter.register_torch_lowering("aten::view.dtype")(_same_dtype)


def _register(converter, name: str, lower: Callable[[LoweredNode], list[Operand]], emission: Emission) -> None:
    @converter.register_torch_lowering(name)
    def lowering(values_map, node, location):
        results = [result.value for result in lower(LoweredNode(emission, values_map, node))]
        return results if len(results) > 1 else results[0]


def _same_dtype(values_map, node, location):
    """The view as bytes that our functions take of weights, which are bytes already."""
    x, dtype = node.args
    if x.meta["val"].dtype != dtype:
        expected(NotImplementedError, "export", f"{x.name} stored as {dtype}, since Core AI has no view of it as one",
                 x.meta["val"].dtype)  # fmt: skip
    return values_map[x.name]
