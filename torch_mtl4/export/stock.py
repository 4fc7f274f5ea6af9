"""What a model is to an exporter that knows PyTorch's own ops only."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from torch_mtl4.integrations.names import ATTENTION_NAME
from torch_mtl4.integrations.patching import configs_in


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def stock_attention(model: nn.Module) -> Iterator[None]:
    """Within this context, what a transformers model sends to our attention goes to a function of transformers'."""
    ours = {}
    for module, config in configs_in(model).items():
        if config._attn_implementation == ATTENTION_NAME:
            supported = getattr(module, "_supports_sdpa", True)
            ours[id(config)] = (config, ours.get(id(config), (None, True))[1] and supported)
    for config, sdpa in ours.values():
        config._attn_implementation_internal = "sdpa" if sdpa else "eager"
    try:
        yield
    finally:
        for config, _ in ours.values():
            config._attn_implementation_internal = ATTENTION_NAME


def repeat_grouped_heads(program: torch.export.ExportedProgram) -> None:
    """Gives attention that has fewer key heads as many as it has query heads: coremltools ignores enable_gqa."""
    aten, graph = torch.ops.aten, program.graph
    for node in list(graph.nodes):
        if node.target != aten.scaled_dot_product_attention.default or not node.kwargs.get("enable_gqa"):
            continue
        for i in (1, 2):
            times = node.args[0].meta["val"].shape[-3] // node.args[i].meta["val"].shape[-3]
            with graph.inserting_before(node):
                heads = _call(graph, aten.unsqueeze.default, node.args[i], -3)
                sizes = [times if d == heads.meta["val"].dim() - 3 else -1 for d in range(heads.meta["val"].dim())]
                heads = _call(graph, aten.expand.default, heads, sizes)
                node.update_arg(i, _call(graph, aten.flatten.using_ints, heads, -4, -3))
        node.update_kwarg("enable_gqa", False)
    program.graph_module.recompile()


def _call(graph: torch.fx.Graph, op, x: torch.fx.Node, *args) -> torch.fx.Node:
    node = graph.call_function(op, (x, *args))
    node.meta["val"] = op(x.meta["val"], *args)
    return node


def unknown_to_coremltools() -> dict:
    """Ops that transformers models trace to and coremltools does not know, by others that it knows."""
    aten = torch.ops.aten
    return {
        aten.diff.default: _diff,
        aten.new_ones.default: _new_ones,
        aten.__and__.Tensor: _and,
        aten.__or__.Tensor: _or,
    }


def _new_ones(x: Tensor, size: Sequence[int], dtype: torch.dtype | None = None, **options) -> Tensor:
    return torch.full(size, 1, dtype=x.dtype if dtype is None else dtype)


def _and(x: Tensor, y: Tensor) -> Tensor:
    return torch.logical_and(x, y) if x.dtype == torch.bool else torch.bitwise_and(x, y)


def _or(x: Tensor, y: Tensor) -> Tensor:
    return torch.logical_or(x, y) if x.dtype == torch.bool else torch.bitwise_or(x, y)


def _diff(x: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    x = torch.cat([part for part in (prepend, x, append) if part is not None], dim)
    for _ in range(n):
        x = x.narrow(dim, 1, x.shape[dim] - 1) - x.narrow(dim, 0, x.shape[dim] - 1)
    return x
