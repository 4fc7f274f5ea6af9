"""Masks whose values are known at export: transformers writes out, while it is traced, what causal and windows say."""

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from torch_mtl4 import _ops

_MASK, _CAUSAL, _LEFT, _RIGHT = 3, 4, 5, 6  # arguments of flash_attention
_NEITHER = (None, -1, -1)
_MOST_ELEMENTS = 1 << 26


def drop_masks(program: ExportedProgram) -> int:
    """Puts a window in the place of each mask of attention that depends on no input and is a band, in place.

    Args:
        program: decomposed, before it is given to the converter.

    Returns:
        How many masks were dropped. The kernels without one skip what they need not read.
    """
    windows: dict[fx.Node, tuple[int, int] | None] = {}
    known, dropped = _Known(program), 0
    for node in list(program.graph.nodes):
        if node.target != _ops.flash_attention:
            continue
        defaults = [argument.default_value for argument in node.target._schema.arguments]
        args = [*node.args, *defaults[len(node.args) :]]
        mask = args[_MASK]
        if mask is None or tuple(args[_CAUSAL : _RIGHT + 1]) != _NEITHER or node.kwargs:
            continue
        if mask not in windows:
            lengths = [args[i].meta["val"].shape[2] for i in (0, 1)]
            windows[mask] = _window(known.value(mask), *lengths)
        if windows[mask] is not None:
            args[_MASK], args[_LEFT], args[_RIGHT] = None, *windows[mask]
            node.args = tuple(args)
            dropped += 1
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return dropped


class _Known:
    """Values of nodes that depend on no input."""

    def __init__(self, program: ExportedProgram):
        signature = program.graph_signature
        changed = set(signature.buffers_to_mutate.values())
        self._values: dict[fx.Node, object] = {}
        self._held = {}
        for spec in signature.input_specs:
            if spec.kind == InputKind.CONSTANT_TENSOR:
                self._held[spec.arg.name] = program.constants[spec.target]
            elif spec.kind in (InputKind.BUFFER, InputKind.PARAMETER) and spec.target not in changed:
                held = program.state_dict if spec.target in program.state_dict else program.constants
                self._held[spec.arg.name] = held[spec.target]

    def value(self, node: fx.Node) -> Tensor | None:
        """None where it depends on an input, on a size that may vary, or is large."""
        if node not in self._values:
            self._values[node] = self._compute(node)
        return self._values[node]

    def _compute(self, node: fx.Node):
        if node.op == "placeholder":
            return self._held.get(node.name)
        shape = getattr(node.meta.get("val"), "shape", None)
        if node.op != "call_function" or shape is None or not all(isinstance(size, int) for size in shape):
            return None
        tags = getattr(node.target, "tags", ())  # functions of Python have none
        if shape.numel() > _MOST_ELEMENTS or torch.Tag.nondeterministic_seeded in tags:
            return None
        if any(self.value(x) is None for x in node.all_input_nodes):
            return None
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.value)
        return node.target(*args, **kwargs)


def _window(mask: Tensor | None, q_len: int, kv_len: int) -> tuple[int, int] | None:
    """(left, right) as flash_attention has them, if the mask is the same for all heads and hides nothing else."""
    if mask is None or mask.dtype != torch.bool:
        return None
    mask = mask.broadcast_to(*mask.shape[:-2], q_len, kv_len) if mask.dim() > 1 else mask.broadcast_to(q_len, kv_len)
    visible = mask.reshape(-1, q_len, kv_len)
    if not visible.numel() or not (visible == visible[:1]).all():
        return None
    visible = visible[0]
    distance = torch.arange(kv_len) - torch.arange(q_len)[:, None] - (kv_len - q_len)
    seen = distance[visible]
    if not seen.numel():
        return None
    left, right = -int(seen.min()), int(seen.max())
    for window in ((-1, -1), (-1, right), (left, -1), (left, right)):
        low, high = (torch.iinfo(torch.int64).max if side < 0 else side for side in window)
        if min(window) >= -1 and torch.equal((distance >= -low) & (distance <= high), visible):
            return window
    return None
