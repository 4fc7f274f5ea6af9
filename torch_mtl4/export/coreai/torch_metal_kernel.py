"""Calls of `torch_mtl4.TorchMetalKernel` in the IR of Core AI: grid and shapes of results are tensors of the graph."""

from collections.abc import Sequence
from typing import Any, NoReturn

from torch import Tensor

from torch_mtl4.custom.apple import TorchMetalKernel
from torch_mtl4.custom.apple_call import specialize
from torch_mtl4.custom.launch import Result
from torch_mtl4.custom.signature import TENSOR
from torch_mtl4.custom.source import HANDLE
from torch_mtl4.export.coreai._apple import call_kernel, tensor_type
from torch_mtl4.export.coreai.context import EmittedKernel, Slot
from torch_mtl4.export.coreai.emit import Operand
from torch_mtl4.export.coreai.lowering import LoweredNode
from torch_mtl4.ops._errors import expected


def lower(kernel: TorchMetalKernel, node: LoweredNode) -> list[Operand]:
    count, names = len(kernel.signature.inputs), list(node.arguments)
    operands, values = [], []
    for i, name in zip(kernel.signature.inputs, names[:count], strict=True):
        if i.kind == TENSOR:
            operands.append(node.operand(name))
            values.append(node.arguments[name].meta["val"])
        else:
            values.append(node.number(name))
    node.check_not_empty(**dict(zip(kernel.signature.tensors, operands, strict=True)))
    given = node.node.meta["val"]
    given = [given] if isinstance(given, Tensor) else list(given)
    results = [Result(tuple(t.shape), t.dtype) for t in given]
    emitted = node.emission.add(_emitted(kernel, values, results), node.node.name, [o.shape for o in operands])
    grid, threadgroup, *shapes = (node.operand(name).value for name in names[count:])
    types = [tensor_type(r.shape, r.dtype) for r in results]
    made = call_kernel(emitted.name, emitted.text, [o.value for o in operands], grid, threadgroup, shapes, types)
    return [Operand(value, r.shape, r.dtype) for value, r in zip(made, results, strict=True)]


def _emitted(kernel: TorchMetalKernel, values: Sequence[Any], results: Sequence[Result]) -> EmittedKernel:
    kernel.signature.check(values)
    specialization = specialize(kernel, values, results)
    inputs = kernel.signature.inputs

    def reference(*tensors: Tensor):
        left = iter(tensors)
        return kernel.reference(*(next(left) if i.kind == TENSOR else v for i, v in zip(inputs, values, strict=True)))

    def launch(shapes) -> NoReturn:
        expected(NotImplementedError, kernel.name, "the grid of a call, which the graph has", "shapes alone")

    return EmittedKernel(
        op=kernel.name,
        name=specialization.name,
        text=specialization.text(HANDLE),
        operands=tuple(Slot(i.name, v.dtype, v.dim()) for i, v in zip(inputs, values, strict=True) if i.kind == TENSOR),
        results=tuple(Slot(n, r.dtype, len(r.shape)) for n, r in zip(kernel.result_names, results, strict=True)),
        reference=reference,
        launch=launch,
    )
