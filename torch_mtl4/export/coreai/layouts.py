"""Keeps transposes away from kernels: attention reads [B, L, H, D] as well, which is what projections give.

A transpose in front of a kernel is a copy of the operand on the device. Models swap heads and rows and then rotate
(RoPE), cast, scale or reshape; here the same steps are made on the operand as it was, and the swap comes last, where
the kernel takes it for free.
"""

import operator
from collections.abc import Callable, Sequence

import sympy
import torch
from torch import SymInt, fx
from torch.export import ExportedProgram

from torch_mtl4 import _ops
from torch_mtl4.export.coreai.attention import swaps_heads_and_rows
from torch_mtl4.export.coreai.emit import expression

aten = torch.ops.aten
_SWAP = (0, 2, 1, 3)


def move_transposes(program: ExportedProgram) -> int:
    """Moves swaps of heads and rows behind what follows them, in place.

    Args:
        program: decomposed, before it is given to the converter.

    Returns:
        How many operands of flash_attention were freed of a transpose. Others have none, or, as a cache that is kept
        as [B, H, T, D], are read as they are.
    """
    graph, moved = program.graph, 0
    mover = _Mover(graph)
    for node in list(graph.nodes):
        if node.target != _ops.flash_attention:
            continue
        for i in range(3):
            operand = node.args[i]
            if swaps_heads_and_rows(operand):
                continue
            before = mover.permuted(operand, _SWAP)
            if before is not None:
                node.update_arg(i, mover.insert(before, aten.permute.default, before, list(_SWAP)))
                moved += 1
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    return moved


class _Mover:
    """Finds or makes the node that is another one permuted, where no elements have to move for that."""

    def __init__(self, graph: fx.Graph):
        self._graph = graph
        self._made: dict[tuple[fx.Node, tuple[int, ...]], fx.Node | None] = {}

    def permuted(self, node: fx.Node, order: Sequence[int]) -> fx.Node | None:
        """The node whose value is that of `node`, permuted; None if that takes a copy."""
        order = tuple(order)
        if order == tuple(range(len(order))):
            return node
        if (node, order) not in self._made:
            self._made[node, order] = self._make(node, order)
        return self._made[node, order]

    def insert(self, after: fx.Node, target: Callable, *args, **kwargs) -> fx.Node:
        """A new call behind a node, with the fake value that the call gives."""
        with self._graph.inserting_after(after):
            node = self._graph.call_function(target, args, kwargs)
        args, kwargs = fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
        node.meta["val"] = target(*args, **kwargs)
        return node

    def _make(self, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
        rule = _RULES.get(node.target)
        if rule is None and node.op == "call_function" and torch.Tag.pointwise in getattr(node.target, "tags", ()):
            rule = _pointwise
        made = rule(self, node, order) if rule else None
        return self._ones_moved(node, order) if made is None else made

    def _ones_moved(self, node: fx.Node, order: tuple[int, ...], missing: int = 0) -> fx.Node | None:
        """Permutes where only dimensions of size 1 pass others, of which the node lacks the first `missing`."""
        if not isinstance(node.meta.get("val"), torch.Tensor):
            return None
        shape = [*[1] * missing, *node.meta["val"].shape]
        ones = {d for d, size in enumerate(shape) if isinstance(size, int) and size == 1}
        kept = [d for d in order if d not in ones]
        if kept != sorted(kept):
            return None
        made, at = node, node
        there = [d - missing for d in sorted(ones) if d >= missing]
        if there:
            made = at = self.insert(at, aten.squeeze.dims, made, there)
        for place, d in enumerate(order):
            if d in ones:
                made = at = self.insert(at, aten.unsqueeze.default, made, place)
        return made

    def operand(self, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
        """What stands for an operand of an operation that broadcasts to len(order) dimensions."""
        missing = len(order) - node.meta["val"].dim()
        return self._ones_moved(node, order, missing) if missing else self.permuted(node, order)


def _pointwise(mover: _Mover, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
    swapped = {}
    for x in node.all_input_nodes:
        if isinstance(x.meta["val"], torch.Tensor) and x.meta["val"].dim() > 0:
            swapped[x] = mover.operand(x, order)
            if swapped[x] is None:
                return None
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda x: swapped.get(x, x))
    kwargs = {name: value for name, value in kwargs.items() if name != "memory_format"}
    return mover.insert(node, node.target, *args, **kwargs)


def _permute(mover: _Mover, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
    x, *rest = node.args
    inner = list(range(len(order)))
    if node.target == aten.permute.default:
        inner = [d % len(order) for d in rest[0]]
    else:
        a, b = rest
        inner[a], inner[b] = inner[b], inner[a]
    return mover.permuted(x, [inner[d] for d in order])


def _slice(mover: _Mover, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
    x, d, *rest = node.args if len(node.args) > 1 else (*node.args, 0)
    before = mover.permuted(x, order)
    return before and mover.insert(node, node.target, before, order.index(d % len(order)), *rest)


def _cat(mover: _Mover, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
    parts, d = (*node.args, 0)[:2]
    # A cache that is still empty is a tensor of shape [0], which cat ignores.
    parts = [x for x in parts if x.meta["val"].shape != (0,)] if len(order) > 1 else parts
    before = [mover.permuted(x, order) for x in parts]
    return None if None in before else mover.insert(node, node.target, before, order.index(d % len(order)))


def _select(mover: _Mover, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
    x, d, index = node.args
    return _without(mover, x, d, order, lambda before, place: mover.insert(node, node.target, before, place, index))


def _without(mover, x: fx.Node, d: int, order, take: Callable) -> fx.Node | None:
    """`take` of x, permuted, and of the place where dimension d is in it, which may be any."""
    rank = len(order) + 1
    rest = [i + (i >= d % rank) for i in order]
    for place in range(rank):
        before = mover.permuted(x, [*rest[:place], d % rank, *rest[place:]])
        if before is not None:
            return take(before, place)
    return None


def _part(mover: _Mover, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
    """An element of what a split gives."""
    parts, index = node.args
    if parts.target == aten.unbind.int:
        x, d = (*parts.args, 0)[:2]
        return _without(mover, x, d, order, lambda b, place: mover.insert(node, aten.select.int, b, place, index))
    if parts.target not in (aten.split.Tensor, aten.split_with_sizes.default):
        return None
    x, sizes, d = (*parts.args, 0)[:3]
    before = mover.permuted(x, order)
    if before is None:
        return None
    split = mover.insert(parts, parts.target, before, sizes, order.index(d % len(order)))
    return mover.insert(node, operator.getitem, split, index)


def _squeeze(mover: _Mover, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
    x, dims = node.args
    dims = [dims] if isinstance(dims, int) else dims
    if len(dims) != 1 or x.meta["val"].dim() == len(order):
        return None
    return _without(mover, x, dims[0], order, lambda b, place: mover.insert(node, aten.squeeze.dims, b, [place]))


def _reduction(mover: _Mover, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
    """One that keeps the dimensions that it reduces."""
    x, dims, keepdim, *rest = (*node.args, *(None, False)[len(node.args) - 1 :])
    if not keepdim or not dims:
        return None
    before = mover.permuted(x, order)
    dims = [order.index(d % len(order)) for d in dims]
    return before and mover.insert(node, node.target, before, dims, True, *rest, **node.kwargs)


def _unsqueeze(mover: _Mover, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
    x, d = node.args
    d %= len(order)
    before = mover.permuted(x, [i - (i > d) for i in order if i != d])
    return before and mover.insert(node, node.target, before, order.index(d))


def _expand(mover: _Mover, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
    x, sizes = node.args
    before = mover.operand(x, order)
    return before and mover.insert(node, node.target, before, [sizes[d] for d in order])


def _view(mover: _Mover, node: fx.Node, order: tuple[int, ...]) -> fx.Node | None:
    shape, source = list(node.meta["val"].shape), node.args[0]
    # A chain that ends in the shape that it began with changes nothing.
    while source.target in _VIEWS:
        source = source.args[0]
        if _same_shape(source, shape):
            return mover.permuted(source, order)
    source = node.args[0]
    if _same_shape(source, shape):
        return mover.permuted(source, order)
    # Else dimensions that it splits or joins must stay together.
    inner = []
    for own, others in sorted(_groups(source.meta["val"].shape, shape), key=lambda group: order.index(group[1][0])):
        first = order.index(others[0])
        if tuple(others) != order[first : first + len(others)]:
            return None
        inner += own
    if len(inner) != source.meta["val"].dim():
        return None
    before = mover.permuted(source, inner)
    return before and mover.insert(node, aten.view.default, before, [node.args[1][d] for d in order])


def _same_shape(node: fx.Node, shape: Sequence[int | SymInt]) -> bool:
    own = node.meta["val"].shape
    return len(own) == len(shape) and all(expression(a) == expression(b) for a, b in zip(own, shape, strict=True))


def _groups(a: Sequence[int | SymInt], b: Sequence[int | SymInt]) -> list[tuple[list[int], list[int]]]:
    """Dimensions of two views of the same elements, as the shortest runs that have equal numbers of them.

    None at all where symbolic sizes do not tell.
    """
    groups, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        own, others, left, right = [i], [j], expression(a[i]), expression(b[j])
        while left != right:
            if own[-1] + 1 < len(a) and _is_factor(left, right):
                own.append(own[-1] + 1)
                left *= expression(a[own[-1]])
            elif others[-1] + 1 < len(b) and _is_factor(right, left):
                others.append(others[-1] + 1)
                right *= expression(b[others[-1]])
            else:
                return []
        groups.append((own, others))
        i, j = own[-1] + 1, others[-1] + 1
    return groups


def _is_factor(a: sympy.Expr, b: sympy.Expr) -> bool:
    if a.is_Integer and b.is_Integer:
        return a < b
    return sympy.fraction(sympy.cancel(b / a))[1] == 1


_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
_RULES = {
    aten.permute.default: _permute,
    aten.transpose.int: _permute,
    aten.slice.Tensor: _slice,
    aten.cat.default: _cat,
    aten.select.int: _select,
    aten.squeeze.dim: _squeeze,
    aten.squeeze.dims: _squeeze,
    **dict.fromkeys((aten.mean.dim, aten.sum.dim_IntList, aten.amax.default), _reduction),
    operator.getitem: _part,
    aten.unsqueeze.default: _unsqueeze,
    aten.expand.default: _expand,
    aten.clone.default: _pointwise,
    aten._to_copy.default: _pointwise,
    aten.alias.default: _pointwise,
    **dict.fromkeys(_VIEWS, _view),
}
