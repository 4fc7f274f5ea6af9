"""A custom kernel on CPU tensors, by the MSL runner: the text that Core AI would get, executed thread by thread."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torch_mtl4.custom.launch import Launch
from torch_mtl4.custom.source import HANDLE, INLINE, Specialization

if TYPE_CHECKING:
    from torch_mtl4 import msl

TIER = "macos27:4.0"  # the system of Core AI; the language that every form of a kernel is compiled in
_AS_BITS = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}
_SENTINEL = 0x5A


def layout_of(tensors: Sequence[Tensor]) -> list[int]:
    """What an inline text reads at `mtl4_layout`: of each tensor its extents and then its strides, innermost first."""
    return [n for t in tensors for n in (*reversed(t.shape), *reversed(t.stride()))]


def library(kernel: Specialization, form: str = HANDLE, *, checked: bool, count: bool = False) -> "msl.Library":
    """The compiled text.

    Raises:
        CompileError: the text was rejected; lines are those of the body, of "<op>.helpers" or of "<op>.generated".
    """
    return _compiled(kernel.text(form), kernel.signature.op, checked, count)


@functools.lru_cache(maxsize=512)
def _compiled(text: str, op: str, checked: bool, count: bool) -> "msl.Library":
    from torch_mtl4 import msl

    return msl.compile(text, name=op, tier=TIER, checked=checked, count=count)


@functools.lru_cache(maxsize=512)
def verdict(text: str, op: str) -> "msl.CheckResult":
    """What Apple's compiler would refuse of a text that clang takes."""
    from torch_mtl4 import msl

    return msl.check(text, name=op, tier=TIER)


def undefined(t: Tensor) -> Tensor:
    """The tensor, filled with NaN or, for whole numbers, with a pattern: nothing that a kernel forgot looks right."""
    if t.is_floating_point():
        return t.fill_(float("nan"))
    t.view(torch.uint8).fill_(_SENTINEL)
    return t


def dispatch(
    library: "msl.Library",
    kernel: Specialization,
    tensors: Mapping[str, Tensor],
    launch: Launch,
    form: str = HANDLE,
    **options,
) -> "msl.DispatchResult":
    """Runs the kernel. `tensors` are the operands by name; what it may not write is bound read-only."""
    from torch_mtl4 import msl

    signature = kernel.signature
    buffers = []
    for operand in kernel.operands:
        tensor = tensors[operand.name].detach()
        if operand.name in signature.outputs:
            buffers.append(msl.Output(tensor))
        elif operand.name in signature.in_place:
            buffers.append(tensor)
        else:
            array = tensor.view(_AS_BITS[tensor.element_size()]).numpy()
            array.setflags(write=False)
            buffers.append(array)
    if form == INLINE:
        layout = torch.tensor(layout_of([tensors[o.name] for o in kernel.operands]), dtype=torch.int32)
        buffers.append(layout)
    return library.kernel(kernel.name).dispatch(
        threadgroup=launch.threadgroup, threads=launch.grid, buffers=buffers, **options
    )


def run(kernel: Specialization, tensors: Mapping[str, Tensor], launch: Launch) -> None:
    """Runs the kernel without watching it."""
    for name in kernel.signature.outputs:
        undefined(tensors[name])
    dispatch(library(kernel, checked=False), kernel, tensors, launch)
