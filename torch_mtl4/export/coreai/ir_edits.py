"""Changes of a Core AI program: a kernel's call replaced by other values, and values made outputs of a function."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from torch_mtl4.export.coreai._apple import (
    ArrayAttr,
    DictAttr,
    FunctionType,
    InsertionPoint,
    Location,
    Operation,
    RankedTensorType,
    ShapedType,
    StringAttr,
    TypeAttr,
    ir,
    tensor_type,
)
from torch_mtl4.export.coreai.asset import sizes_of

ZERO = "mtl4_zero"
# Operations that only say where a tensor lies, or that one of its sizes is known.
_TRANSPARENT = ("coreaix.copy_with_constraints", "coreai.cast")


def split(op) -> tuple[list, list]:
    """The tensors that a kernel is given, and its grid, threadgroup and result sizes."""
    operands = list(op.operands)
    count = len(operands) - 2 - len(list(op.results))
    return [_origin(value) for value in operands[:count]], operands[count:]


def _origin(value):
    while True:
        owner = value.owner
        if getattr(owner, "name", "") not in _TRANSPARENT:
            return value
        before = owner.operands[0]
        if str(before.type.element_type) != str(value.type.element_type):
            return value
        value = before


def add_zero(graph):
    """A new input of a function that is 0: of a constant, the compiler would compute all that follows from it."""
    zero = graph.regions[0].blocks[0].add_argument(tensor_type([1], torch.float32), Location.unknown())
    named = DictAttr.get({"coreai.name": StringAttr.get(ZERO)})
    graph.attributes["arg_attrs"] = ArrayAttr.get([*graph.attributes["arg_attrs"], named])
    return zero


def zeros(op, zero) -> list:
    """Zeros of the sizes that a kernel announces, for each of its results."""
    _, (_, _, *shapes) = split(op)
    made = []
    for result, shape in zip(op.results, shapes, strict=True):
        of = result.type
        one = ir.cast(zero, RankedTensorType.get([1], of.element_type))
        one = ir.reshape(one, np.ones(of.rank, np.uint32)) if of.rank != 1 else one
        made.append(as_type_of(result, ir.broadcast_to(one, shape)))
    return made


def as_type_of(result, value):
    """A value with the sizes that are known of a kernel's result, so that whoever uses it finds what it expects."""
    if sizes_of(result) == sizes_of(value):
        return value
    unknown = ShapedType.get_dynamic_size()
    of = RankedTensorType.get([unknown if s is None else s for s in sizes_of(result)], value.type.element_type)
    return ir.cast(value, of)


def replace(op, values: Iterable) -> None:
    """Puts values in the place of a kernel's results, and takes its call away."""
    for result, value in zip(list(op.results), values, strict=True):
        for use in list(result.uses):
            if use.owner.name == "coreaix.copy_discarding_constraints":
                use.owner.results[0].replace_all_uses_with(value)
                use.owner.erase()
        result.replace_all_uses_with(value)
    op.erase()


def add_outputs(graph, values: Sequence, only: bool = False) -> list[str]:
    """Makes values outputs of a function, and returns their names; with `only` in place of the outputs that it has."""
    block = graph.regions[0].blocks[0]
    end = list(block.operations)[-1].operation
    attributes = list(graph.attributes["res_attrs"]) if "res_attrs" in graph.attributes else []
    old = list(end.operands)
    kept = [i for i, value in enumerate(old) if not only or "token" in str(value.type)]
    names = [f"mtl4_watched_{i}" for i in range(len(values))]
    results = [*(old[i] for i in kept), *values]
    with InsertionPoint(end):
        Operation.create("coreai.output", operands=results, loc=Location.unknown())
    end.erase()
    types = FunctionType.get([argument.type for argument in block.arguments], [value.type for value in results])
    graph.attributes["function_type"] = TypeAttr.get(types)
    named = [DictAttr.get({"coreai.name": StringAttr.get(name)}) for name in names]
    graph.attributes["res_attrs"] = ArrayAttr.get([*(attributes[i] for i in kept), *named])
    return names
