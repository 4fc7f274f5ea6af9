"""One call of a kernel on real tensors: checks, results, grid, the text, and then the backend that runs it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torch_mtl4.custom.launch import Launch
from torch_mtl4.custom.signature import Signature
from torch_mtl4.custom.source import Specialization
from torch_mtl4.ops._errors import expected

if TYPE_CHECKING:
    from torch_mtl4.custom.kernel import MetalKernel

# Offsets in elements that the text of a kernel computes are ints.
_MAX_SPAN = 2**31 - 1
Run = Callable[[Specialization, Mapping[str, Tensor], Launch], None]


def execute(kernel: "MetalKernel", values: Sequence, run: Run) -> tuple[Tensor, ...]:
    """The results of a call, computed by `run`; inputs that are in place are written to."""
    signature = kernel.signature
    signature.check(values)
    inputs = dict(zip((i.name for i in signature.inputs), values, strict=True))
    check_in_place(signature, inputs)
    some = inputs[signature.tensors[0]]
    results = kernel.launcher.results(values)
    outputs = {
        name: torch.empty(result.shape, dtype=result.dtype, device=some.device)
        for name, result in zip(signature.outputs, results, strict=True)
    }
    written = [*outputs.values(), *(inputs[name] for name in signature.in_place)]
    if all(t.numel() == 0 for t in written):
        return tuple(outputs.values())
    launch = kernel.launcher.launch({**inputs, **outputs})
    if 0 in launch.grid:
        expected(ValueError, signature.op, "grid of at least one thread, since there are results", list(launch.grid))
    tensors = {name: _operand(signature.op, name, inputs[name]) for name in signature.tensors} | outputs
    run(kernel.specialize(values, results), tensors, launch)
    for name in signature.in_place:
        if tensors[name] is not inputs[name]:
            inputs[name].copy_(tensors[name])
    return tuple(outputs.values())


def _operand(op: str, name: str, t: Tensor) -> Tensor:
    """The tensor itself, or a dense copy where its innermost elements are not neighbours, as those of Metal's are."""
    if t.shape[-1] > 1 and t.stride(-1) != 1 and t.numel() > 0:
        t = t.contiguous()
    span = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
    if max(span, *t.shape, *t.stride()) > _MAX_SPAN:
        expected(NotImplementedError, op, f"{name} within 2^31 elements, which a kernel numbers by int", t.shape)
    return t


def check_in_place(signature: Signature, inputs: Mapping[str, object]) -> None:
    """Raises if an element of what a kernel writes to has the memory of another, of its own or of another input."""
    for name in signature.in_place:
        t = inputs[name]
        if _overlaps_itself(t):
            got = f"sizes {list(t.shape)} with strides {list(t.stride())}"
            expected(ValueError, signature.op, f"{name}, which is written in place, without elements that overlap", got)
        for other in signature.tensors:
            if other != name and _may_share(t, inputs[other]):
                expected(ValueError, signature.op, f"{name}, which is written in place, in memory of its own",
                         f"memory that {other} has, too, or lies between")  # fmt: skip


def _overlaps_itself(t: Tensor) -> bool:
    """Whether two elements may be the same memory: exact for slices, permutations and expansions of a tensor."""
    reach = 0
    for stride, size in sorted(zip(t.stride(), t.shape, strict=True)):
        if size > 1 and stride <= reach:
            return t.numel() > 0
        reach += stride * (size - 1)
    return False


def _may_share(a: Tensor, b: Tensor) -> bool:
    if a.numel() == 0 or b.numel() == 0 or a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return False
    (a_low, a_high), (b_low, b_high) = _bytes(a), _bytes(b)
    return a_low < b_high and b_low < a_high


def _bytes(t: Tensor) -> tuple[int, int]:
    span = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    low = t.storage_offset() * t.element_size()
    return low, low + (span + 1) * t.element_size()
