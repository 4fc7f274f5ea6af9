"""Kernels that are broken on purpose, to see that `check` notices."""

import dataclasses
import itertools

from torch_mtl4 import msl
from torch_mtl4.custom import MetalKernel

_numbers = itertools.count()


def mutant(kernel: MetalKernel, old: str, new: str) -> MetalKernel:
    """The kernel with the first `old` of its body replaced."""
    source = kernel.definition.source
    assert old in source, f"{kernel.name} has no {old!r}"
    return _changed(kernel, source.replace(old, new, 1))


def without_barrier(kernel: MetalKernel, which: int) -> MetalKernel:
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"
    parts = kernel.definition.source.split(barrier)
    return _changed(kernel, barrier.join(parts[: which + 1]) + barrier.join(["", *parts[which + 1 :]])[len(barrier) :])


def noticed(kernel: MetalKernel, *inputs) -> bool:
    """Whether checking finds something, or the kernel cannot go on."""
    try:
        return not kernel.check(*inputs)
    except msl.KernelFaultError:
        return True
    finally:
        kernel.remove()


def _changed(kernel: MetalKernel, source: str) -> MetalKernel:
    return MetalKernel(dataclasses.replace(kernel.definition, name=f"mutant_{next(_numbers)}", source=source))
