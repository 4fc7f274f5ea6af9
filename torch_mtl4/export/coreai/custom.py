"""Kernels of `torch_mtl4.metal_kernel` in the IR of Core AI: their texts are what it takes, as they are."""

import functools
from collections.abc import Sequence

import torch
from torch import SymInt, Tensor, fx

from torch_mtl4.custom.kernel import MetalKernel
from torch_mtl4.custom.launch import Result
from torch_mtl4.custom.signature import SIZES, TENSOR
from torch_mtl4.custom.source import HANDLE
from torch_mtl4.export.coreai.context import EmittedKernel, Launch, Shape, Slot
from torch_mtl4.export.coreai.emit import Operand
from torch_mtl4.export.coreai.lowering import LoweredNode
from torch_mtl4.ops._errors import expected


def lower(kernel: MetalKernel, node: LoweredNode) -> list[Operand]:
    if kernel.signature.in_place:
        names = ", ".join(kernel.signature.in_place)
        expected(NotImplementedError, kernel.name, "no inputs written in place, since kernels of Core AI are functions",
                 names)  # fmt: skip
    inputs, names = kernel.signature.inputs, list(node.arguments)
    operands, values = [], []
    for i, name in zip(inputs, names, strict=True):
        if i.kind == TENSOR:
            operands.append(node.operand(name))
            values.append(node.arguments[name].meta["val"])
        elif i.kind == SIZES:
            values.append([size.meta["val"] if isinstance(size, fx.Node) else size for size in node.arguments[name]])
        else:
            values.append(node.number(name))
    node.check_not_empty(**{i.name: o for i, o in zip((i for i in inputs if i.kind == TENSOR), operands, strict=True)})
    return node.call(emitted(kernel, values), *operands)


def emitted(kernel: MetalKernel, values: Sequence) -> EmittedKernel:
    """The kernel for such inputs, of which tensors are fake ones."""
    results = kernel.launcher.results(values)
    specialization = kernel.specialize(values, results)
    slots = [Slot(i.name, v.dtype, v.dim()) for i, v in zip(kernel.signature.inputs, values, strict=True)
             if i.kind == TENSOR]  # fmt: skip
    own = _launch(kernel, values, results)

    def launch(shapes: Sequence[Shape]) -> Launch:
        # Symbolic shapes are those of the inputs above: no one else has such.
        if any(isinstance(size, SymInt) for shape in shapes for size in shape):
            return own
        tensors = [torch.empty(s, dtype=slot.dtype, device="meta") for s, slot in zip(shapes, slots, strict=True)]
        given = _with_tensors(kernel, values, tensors)
        return _launch(kernel, given, kernel.launcher.results(given))

    return EmittedKernel(
        op=kernel.name,
        name=specialization.name,
        text=specialization.text(HANDLE),
        operands=tuple(slots),
        results=tuple(Slot(n, r.dtype, len(r.shape)) for n, r in zip(kernel.signature.outputs, results, strict=True)),
        reference=functools.partial(_reference, kernel, [None if isinstance(v, Tensor) else v for v in values]),
        launch=launch,
    )


def _reference(kernel: MetalKernel, values: Sequence, *tensors: Tensor):
    return kernel.reference(*_with_tensors(kernel, values, tensors))


def _with_tensors(kernel: MetalKernel, values: Sequence, tensors: Sequence[Tensor]) -> list:
    left = iter(tensors)
    return [next(left) if i.kind == TENSOR else v for i, v in zip(kernel.signature.inputs, values, strict=True)]


def _launch(kernel: MetalKernel, values: Sequence, results: Sequence[Result]) -> Launch:
    launch = kernel.launch(*values)
    return Launch(launch.grid, launch.threadgroup, tuple(r.shape for r in results))
