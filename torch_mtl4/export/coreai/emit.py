"""One kernel call in the IR of Core AI: operands, and a grid and result shapes that are computed from sizes."""

from collections.abc import Mapping, Sequence

import numpy as np
import sympy
import torch
from torch import SymInt, fx
from torch.utils._sympy import functions

from torch_mtl4.export.coreai._apple import Value, call_kernel, ir, tensor_type
from torch_mtl4.export.coreai.context import Emission, EmittedKernel
from torch_mtl4.ops._errors import expected


class Operand:
    """A value of the IR and the torch tensor, a fake one, that it stands for."""

    def __init__(self, value: Value, shape: Sequence[int | SymInt], dtype: torch.dtype):
        self.value, self.shape, self.dtype = value, tuple(shape), dtype


def emit_kernel(
    emission: Emission, kernel: EmittedKernel, operands: Sequence[Operand], sizes: "Sizes", node: str
) -> list[Operand]:
    """Calls a kernel.

    Args:
        emission: where the kernel and the call are recorded.
        kernel: what is called.
        operands: in the order of kernel.operands.
        sizes: of the graph that the call stands in.
        node: the name of the node that the call stands for.

    Returns:
        The results, in the order of kernel.results.
    """
    op = kernel.op
    given = [(o.dtype, len(o.shape)) for o in operands]
    wanted = [(slot.dtype, slot.rank) for slot in kernel.operands]
    if given != wanted:
        expected(ValueError, op, f"operands of {kernel.name} as (dtype, rank) {wanted}", given)
    shapes = [o.shape for o in operands]
    launch = kernel.launch(shapes)
    kernel = emission.add(kernel, node, shapes)
    values = call_kernel(
        kernel.name,
        kernel.text,
        [o.value for o in operands],
        sizes.vector(launch.grid),
        sizes.vector(launch.threadgroup),
        [sizes.vector(shape) for shape in launch.results],
        [tensor_type(shape, slot.dtype) for shape, slot in zip(launch.results, kernel.results, strict=True)],
    )
    return [
        Operand(value, shape, slot.dtype)
        for value, shape, slot in zip(values, launch.results, kernel.results, strict=True)
    ]


class Sizes:
    """Sizes in the IR. Symbolic ones are computed from the shapes of the graph's values."""

    def __init__(self, values_map: Mapping[str, Value], node: fx.Node):
        self._values_map, self._node = values_map, node
        self._dimensions: dict[sympy.Expr, tuple[fx.Node, int]] | None = None

    def vector(self, sizes: Sequence[int | SymInt]) -> Value:
        """ui32 [n]: the sizes, as the grid and the shapes of results are given."""
        if all(isinstance(size, int) for size in sizes):
            return ir.constant(np.asarray(sizes, np.uint32))
        parts = [ir.cast(self._value(expression(size)), dtype=np.uint32) for size in sizes]
        return ir.concat(0, parts)

    def shape(self, sizes: Sequence[int | SymInt]) -> list[int] | Value:
        """The sizes as reshape takes them."""
        return [int(size) for size in sizes] if all(isinstance(s, int) for s in sizes) else self.vector(sizes)

    def _value(self, expression: sympy.Expr) -> Value:
        """si32 [1]."""
        if expression.is_Integer:
            return ir.constant(np.asarray([int(expression)], np.int32))
        if expression in self._known():
            node, dimension = self._known()[expression]
            shape = ir.cast(ir.get_shape(self._values_map[node.name]), dtype=np.int32)
            return ir.slice_(shape, [dimension], [dimension + 1], [1])
        if expression.is_Symbol:
            # Inputs may have no size that is the symbol alone, but one that is made of it: 2 * s + 1.
            for size in self._known():
                factor = size.coeff(expression)
                rest = size - factor * expression
                if factor.is_Integer and factor > 0 and rest.is_Integer:
                    multiple = self._fold(ir.broadcasting_sub, [size, rest])
                    return ir.broadcasting_floor_divide(multiple, self._value(factor))
        if isinstance(expression, (sympy.Pow, functions.PowByNatural)) and expression.args[1].is_Integer:
            base, exponent = expression.args
            return self._fold(ir.broadcasting_mul, [base] * int(exponent))
        if isinstance(expression, _ROUNDED) and isinstance(expression.args[0], functions.IntTrueDiv):
            above, below = expression.args[0].args
            up = isinstance(expression, functions.CeilToInt)
            return self._fold(ir.broadcasting_floor_divide, [above + below - 1 if up else above, below])
        for kinds, operation in _OPERATIONS:
            if isinstance(expression, kinds):
                return self._fold(operation, expression.args)
        return expected(NotImplementedError, "export", "sizes made of +, *, //, %, min and max of inputs' sizes",
                        str(expression))  # fmt: skip

    def _fold(self, operation, terms: Sequence[sympy.Expr]) -> Value:
        value = self._value(terms[0])
        for term in terms[1:]:
            value = operation(value, self._value(term))
        return value

    def _known(self) -> dict[sympy.Expr, tuple[fx.Node, int]]:
        """Where each size that a value of the graph has is to be read."""
        if self._dimensions is None:
            self._dimensions = {}
            for node in self._node.graph.nodes:
                if node is self._node:
                    break
                tensor = node.meta.get("val")
                if node.name not in self._values_map or not isinstance(tensor, torch.Tensor):
                    continue
                for dimension, size in enumerate(tensor.shape):
                    if isinstance(size, SymInt):
                        self._dimensions.setdefault(size.node.expr, (node, dimension))
        return self._dimensions


_OPERATIONS = (
    ((sympy.Add,), ir.broadcasting_add),
    ((sympy.Mul,), ir.broadcasting_mul),
    ((functions.Identity, functions.FloorDiv, functions.CleanDiv), ir.broadcasting_floor_divide),
    ((functions.Mod, functions.PythonMod), ir.broadcasting_modulo),
    ((sympy.Max, functions.Max), ir.broadcasting_maximum),
    ((sympy.Min, functions.Min), ir.broadcasting_minimum),
)

_ROUNDED = (functions.CeilToInt, functions.FloorToInt, functions.TruncToInt)


def expression(size: int | SymInt) -> sympy.Expr:
    """A size as sympy has it."""
    return sympy.Integer(size) if isinstance(size, int) else size.node.expr
