"""Reads from the runtime what a dispatch cost."""

import ctypes
import math
from collections.abc import Sequence

from . import native
from .binding import BoundBuffers
from .cost import DEVICE, Cost, Products, Traffic

_UNBOUND = "(unbound)"


def read_cost(
    kernel: str, reports: int, bound: BoundBuffers, groups: Sequence[int], threads: int, threadgroup_memory: int
) -> Cost:
    """The counts that a dispatch left with its reports."""
    runtime, view = native.runtime(), native.CostView()
    runtime.msl_cost(reports, ctypes.byref(view))
    buffers = {name: _traffic(reports, buffer, space) for name, space, buffer in bound.counted()}
    unbound = _traffic(reports, None, DEVICE)
    if unbound.read:
        buffers[_UNBOUND] = unbound
    named = {kind: {} for kind in native.COUNTED}
    for i in range(view.named):
        count = native.NamedCount()
        runtime.msl_cost_named(reports, i, ctypes.byref(count))
        kind, name = native.COUNTED[count.kind], count.name.decode()
        products = Products(count.operations, count.multiply_accumulates)
        named[kind][name] = products if kind == "products" else count.operations
    return Cost(
        kernel=kernel,
        threadgroups=math.prod(groups),
        threads=threads,
        threadgroup_memory=threadgroup_memory,
        threadgroup_read=view.threadgroup.read,
        threadgroup_written=view.threadgroup.written,
        threadgroup_barriers=view.threadgroup_barriers,
        simdgroup_barriers=view.simdgroup_barriers,
        buffers=buffers,
        **{kind: dict(sorted(counts.items())) for kind, counts in named.items()},
    )


def _traffic(reports: int, buffer: int | None, space: str) -> Traffic:
    traffic = native.Traffic()
    native.runtime().msl_cost_buffer(reports, buffer, ctypes.byref(traffic))
    return Traffic(space, traffic.read, traffic.written, traffic.unique_read, traffic.unique_written)
