"""What the model itself gives, which its asset is compared with, and how long an interpreter would take for it."""

import copy
import math

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from torch_mtl4 import _ops, testing
from torch_mtl4.export.coreai.convert import Function, Inputs, TensorsOf
from torch_mtl4.export.coreai.prepare import copy_with_own
from torch_mtl4.export.coreai.verify import Expected

# What Core AI's interpreter on Linux was seen to do, and how long a twin may take.
FLOPS_PER_SECOND = {torch.float16: 2e7}
USUAL_FLOPS_PER_SECOND = 1e9
TWIN_SECONDS = 60.0


def expected_of(function: Function, model: nn.Module, call: Inputs, run_model: bool = True) -> Expected:
    """Runs the model on the CPU, with its own attention; its linear layers hold the bytes that the asset holds.

    The allowed error follows the policy of torch_mtl4.testing: for half precision the truth is a copy in float32, and
    in the place of PyTorch's own path stands the model as it is.

    Args:
        function: what was exported.
        model: as it was before its attention was replaced. It is not changed.
        call: the inputs, which are not changed.
        run_model: without it only inputs and states are given.
    """
    inputs, states = function.given(call)
    if not run_model:
        return Expected(inputs, states, {}, {})
    baseline = _run(function, model, call)
    halves = {t.dtype for t in [*model.parameters(), *model.buffers()]} & {torch.float16, torch.bfloat16}
    truth = _run(function, model, call, torch.float32) if halves else baseline
    allowed = {name: _allowed(value, truth[name]) for name, value in baseline.items() if value.is_floating_point()}
    return Expected(inputs, states, truth, allowed)


def _allowed(value: Tensor, truth: Tensor) -> float:
    floor = testing.MODEL_FLOOR_EPS[value.dtype] * torch.finfo(value.dtype).eps
    finite = truth[truth.isfinite()]
    size = finite.abs().max().item() if finite.numel() else 0.0
    return testing.TWICE * testing.error_of(value, truth) + floor * size


@torch.no_grad()
def _run(function: Function, model: nn.Module, call: Inputs, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Outputs, and states afterwards, of a copy of the model that has its own states; floats cast to dtype if given."""
    buffers = dict(model.named_buffers())
    changed = function.mutated()
    model = copy_with_own(model, [buffers[name] for name in changed])
    if dtype is not None:
        model = copy.deepcopy(model).to(dtype)

    def own(leaf):
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.to(dtype, copy=True) if dtype is not None and leaf.is_floating_point() else leaf.clone()

    call = Inputs(*pytree.tree_map(own, (call.args, call.kwargs)), call.fixed)
    outputs = TensorsOf(model, False, call.fixed)(*call.args, **call.kwargs)
    _, states = function.given(call, model)
    return dict(zip(function.names.outputs, outputs, strict=True)) | states


def too_slow(function: Function, limit: float = TWIN_SECONDS) -> str | None:
    """Why the twin of a function would take too long, or None."""
    seconds, total = 0.0, 0
    for node in function.program.graph.nodes:
        count = _flops(node)
        if count:
            dtype = _first(node.meta["val"]).dtype
            seconds += count / FLOPS_PER_SECOND.get(dtype, USUAL_FLOPS_PER_SECOND)
            total += count
    if seconds <= limit:
        return None
    return (
        f"{total / 1e9:.2g} GFLOP take the interpreter of this machine about {seconds:.0f} s, {limit:.0f} s are allowed"
    )


def _flops(node) -> int:
    packet = getattr(node.target, "_overloadpacket", None)
    if packet not in flop_registry and packet not in _OURS:
        return 0
    args, kwargs = pytree.tree_map_only(torch.fx.Node, lambda n: _sizes(n.meta["val"]), (node.args, node.kwargs))
    if packet in _OURS:
        return _OURS[packet](*args)
    return flop_registry[packet](*args, **kwargs, out_val=_sizes(node.meta["val"]))


def _linear_flops(x, weight, *_) -> int:
    return 2 * math.prod(x) * weight[0]


def _attention_flops(query, key, value, *_) -> int:
    return 2 * math.prod(query[:3]) * key[2] * (query[3] + value[3])


_OURS = {
    _ops.mxfp8_linear.overloadpacket: _linear_flops,
    _ops.flash_attention.overloadpacket: _attention_flops,
}


def _first(value) -> Tensor:
    return value[0] if isinstance(value, (tuple, list)) else value


def _sizes(value):
    if not isinstance(value, Tensor):
        return value
    return torch.Size([size if isinstance(size, int) else size.node.hint for size in value.shape])
