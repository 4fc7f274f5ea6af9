"""What a graph says of a node: the numbers in a small tensor of sizes, and the transposes behind an operand."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

_aten = torch.ops.aten
# The same elements in the same order; only the dtype may differ.
_SAME = {
    _aten.clone, _aten.alias, _aten.detach, _aten.detach_, _aten.contiguous, _aten.lift_fresh_copy, _aten.lift_fresh,
    _aten.to, _aten._to_copy, _aten.unsqueeze,
}  # fmt: skip


def packet(node: Any) -> Any:
    """Of a node that calls an op: the op, whatever its overload."""
    return getattr(node.target, "overloadpacket", None) if isinstance(node, fx.Node) else None


def value_of(argument: Any) -> Any:
    """What an argument of a node is while the graph is traced: a fake tensor, a size, a number."""
    return argument.meta.get("val") if isinstance(argument, fx.Node) else argument


def sizes_in(node: Any, constants: Mapping[str, Tensor]) -> list | None:
    """The numbers, known or symbolic, of a tensor of sizes; None: it is computed in a way that is not followed."""
    if not isinstance(node, fx.Node):
        return None
    if node.name in constants:
        return constants[node.name].reshape(-1).tolist()
    op = packet(node)
    if op in _SAME:
        return sizes_in(node.args[0], constants)
    if op is _aten.scalar_tensor:
        return [value_of(node.args[0])]
    if op is _aten.full and len(node.args[0]) <= 1:
        return [value_of(node.args[1])] * (node.args[0][0] if node.args[0] else 1)
    if op in (_aten.cat, _aten.stack):
        parts = [sizes_in(part, constants) for part in node.args[0]]
        return None if None in parts else [n for part in parts for n in part]
    return None


def constants_of(program: "torch.export.ExportedProgram") -> dict[str, Tensor]:
    """The tensors with known values among the graph's inputs, by the name of the node."""
    signature, found = program.graph_signature, {}
    for name, key in signature.inputs_to_lifted_tensor_constants.items():
        if isinstance(program.constants.get(key), Tensor):
            found[name] = program.constants[key]
    for name, key in signature.inputs_to_buffers.items():
        value = program.state_dict.get(key, program.constants.get(key))
        if isinstance(value, Tensor) and key not in signature.buffers_to_mutate.values():
            found[name] = value
    return found


def permutation_of(node: Any) -> list[int] | None:
    """Which dimension of the tensor behind it each dimension of an operand is, if a transpose is what moves them."""
    value = value_of(node)
    order = list(range(value.dim()))
    while isinstance(node, fx.Node):
        op, args = packet(node), node.args
        rank = len(order)
        if op is _aten.permute:
            dims = [d % rank for d in args[1]]
        elif op in (_aten.transpose, _aten.t, _aten.mT, _aten.numpy_T) and (rank == 2 or op is not _aten.numpy_T):
            a, b = (args[1] % rank, args[2] % rank) if op is _aten.transpose else (rank - 2, rank - 1)
            dims = list(range(rank))
            dims[a], dims[b] = b, a
        elif op in _SAME and op is not _aten.unsqueeze:
            dims = list(range(rank))
        else:
            break
        order = [dims[d] for d in order]
        node = args[0]
    # Dimensions of one element may stand anywhere.
    moved = [d for d, size in zip(order, value.shape, strict=True) if not is_one(size)]
    return order if moved != sorted(moved) else None


def bounds(n: Any) -> tuple[float, float]:
    """The least and the greatest value of a size."""
    if not isinstance(n, torch.SymInt):
        return n, n
    node = n.node
    if node.has_hint() or node.expr.free_symbols:
        found = node.shape_env.bound_sympy(node.expr)
        return _number(found.lower), _number(found.upper)
    return -float("inf"), float("inf")


def _number(bound: Any) -> float:
    try:
        return float(bound)
    except (TypeError, OverflowError, ValueError):
        return float("inf") if bound > 0 else -float("inf")


def is_one(n: Any) -> bool:
    """Whether a size is known to be 1."""
    return isinstance(n, int) and n == 1


def is_symbolic(n: Any) -> bool:
    return isinstance(n, torch.SymInt) and not n.node.is_constant()


def is_unbacked(n: Any) -> bool:
    return is_symbolic(n) and any(str(s).startswith("u") for s in n.node.expr.free_symbols)


def surely_differ(a: Any, b: Any) -> bool:
    """Whether two sizes differ whatever the symbols are."""
    if not isinstance(a, torch.SymInt) and not isinstance(b, torch.SymInt):
        return a != b
    shape_env = (a if isinstance(a, torch.SymInt) else b).node.shape_env
    difference = _expression(a) - _expression(b)
    return bool(shape_env.simplify(difference).is_nonzero)


def _expression(n: Any) -> Any:
    import sympy

    return n.node.expr if isinstance(n, torch.SymInt) else sympy.Integer(n)
