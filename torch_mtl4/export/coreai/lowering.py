"""What a lowering works with: the arguments of one node of the graph, as values of the IR."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import SymInt, fx

from torch_mtl4.export.coreai._apple import Value, ir, tensor_type
from torch_mtl4.export.coreai.context import Emission, EmittedKernel
from torch_mtl4.export.coreai.emit import Operand, Sizes, emit_kernel
from torch_mtl4.ops._errors import expected


class LoweredNode:
    """A node that calls an op, while it is lowered.

    Attributes:
        op: the op's name, without its namespace.
        arguments: by name, with the defaults of the schema; tensors and symbolic numbers are nodes.
    """

    def __init__(self, emission: Emission, values_map: Mapping[str, Value], node: fx.Node):
        self.emission, self._values_map, self.node = emission, values_map, node
        self.sizes = Sizes(values_map, node)
        schema = node.target._schema
        self.op = schema.name.split("::")[1]
        self.arguments: dict[str, Any] = {a.name: a.default_value for a in schema.arguments}
        self.arguments.update(zip(self.arguments, node.args, strict=False))
        self.arguments.update(node.kwargs)

    def operand(self, name: str) -> Operand | None:
        """The tensor of that name; None where the call has none."""
        node = self.arguments[name]
        return None if node is None else self.operand_of(node)

    def operand_of(self, node: fx.Node) -> Operand:
        tensor = node.meta["val"]
        return Operand(self._values_map[node.name], tensor.shape, tensor.dtype)

    def number(self, name: str) -> Any:
        """An argument that is no tensor; it stands in the text, so it must be known."""
        value = self.arguments[name]
        if isinstance(value, fx.Node):
            expected(NotImplementedError, self.op, f"{name} a number that is known at export", "one that is computed")
        return value

    def known(self, what: str, size: int | SymInt) -> int:
        """A size that a kernel is made for."""
        if not isinstance(size, int):
            expected(NotImplementedError, self.op, f"{what} of a size that is known at export", str(size))
        return size

    def reshape(self, x: Operand, shape: Sequence[int | SymInt]) -> Operand:
        if tuple(x.shape) == tuple(shape):
            return x
        return Operand(ir.reshape(x.value, self.sizes.shape(shape)), shape, x.dtype)

    def permute(self, x: Operand, order: Sequence[int]) -> Operand:
        value = ir.transpose(x.value, ir.constant(np.asarray(order, np.uint32)))
        return Operand(value, [x.shape[i] for i in order], x.dtype)

    def cast(self, x: Operand, dtype: torch.dtype) -> Operand:
        return Operand(ir.cast(x.value, tensor_type((), dtype).element_type), x.shape, dtype)

    def call(self, kernel: EmittedKernel, *operands: Operand | None) -> list[Operand]:
        """Emits a call of the kernel with those operands that there are."""
        return emit_kernel(self.emission, kernel, [o for o in operands if o is not None], self.sizes, self.node.name)

    def check_not_empty(self, **tensors: Operand | None) -> None:
        """Core AI has no tensors without elements, and no grids of no threads."""
        for name, x in tensors.items():
            if x is not None and any(isinstance(size, int) and size == 0 for size in x.shape):
                expected(NotImplementedError, self.op, f"{name} with elements, since Core AI has no empty tensors",
                         [*map(str, x.shape)])  # fmt: skip


def largest(size: int | SymInt, most: int) -> int:
    """The size, or of one that may vary the largest, up to `most`: kernels are chosen for it."""
    if isinstance(size, int):
        return size
    upper = _range(size).upper
    return min(int(upper), most) if upper.is_Integer else most


def smallest(size: int | SymInt) -> int:
    return size if isinstance(size, int) else max(int(_range(size).lower), 1)


def _range(size: SymInt):
    return size.node.shape_env.bound_sympy(size.node.expr)


def ceil_div(a: int | SymInt, b: int) -> int | SymInt:
    return (a + b - 1) // b


def product(sizes: Sequence[int | SymInt]) -> int | SymInt:
    total = 1
    for size in sizes:
        total = total * size
    return total


def example(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor whose memory nobody touches, for the sizes that a plan is made for."""
    return torch.empty(tuple(shape), dtype=dtype)
