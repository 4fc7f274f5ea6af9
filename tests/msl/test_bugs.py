"""Planted bugs: each is reported with its kind and line, in plain and in random order; the correct twins are silent."""

import numpy as np
import pytest

from torch_mtl4 import msl

from .conftest import KERNELS, _compile

SOURCE = (KERNELS / "bugs.metal").read_text().splitlines()
PLANTED = {
    "missing_barrier": "race",
    "missing_war_barrier": "race",
    "missing_simd_barrier": "race",
    "wrong_mem_flag": "race",
    "oob_device_read": "out-of-bounds",
    "oob_device_write": "out-of-bounds",
    "oob_threadgroup": "out-of-bounds",
    "divergent_barrier_sites": "divergent-barrier",
    "barrier_after_return": "barrier-after-exit",
    "barrier_some_simdgroups": "barrier-after-exit",
    "uninitialised_tg": "uninitialised-read",
    "uninitialised_device": "uninitialised-read",
    "inactive_lane": "inactive-lane",
    "divergent_matrix": "divergent-simdgroup-op",
    "group_race": "race",
    "group_race_rmw": "race",
    "write_constant": "write-to-constant",
    "coop_wrong_scope": "execution-scope",
    "coop_capacity": "coop-capacity",
    "stack_overflow": "stack-overflow",
}
ONE_OUTPUT_A_GROUP = ("missing_barrier", "good_reduce")
CORRECT = ["good_reduce", "good_divergence", "good_half_neighbours"]


def lines_of(kernel):
    """(first, last) line of a kernel in the source."""
    first = next(i for i, line in enumerate(SOURCE, 1) if f"void {kernel}(" in line)
    last = next((i for i, line in enumerate(SOURCE[first:], first) if line.startswith("kernel")), len(SOURCE))
    return first, last


def run(kernel, checked=True, **options):
    outputs = 4 if kernel in ONE_OUTPUT_A_GROUP else 4 * 128
    x, out = np.arange(128, dtype=np.float32), np.full(outputs, np.nan, np.float32)
    lib = _compile("bugs.metal", checked, ())
    try:
        report = lib.kernel(kernel).dispatch(4, 128, [x, msl.Output(out), np.uint32(100)], **options).report
    except msl.KernelFaultError as fault:
        report = fault.report
    return report, out


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("kernel", PLANTED)
def test_planted_bug_is_reported(kernel, shuffle):
    report, _ = run(kernel, shuffle=shuffle)
    found = [finding for finding in report if finding.kind == PLANTED[kernel]]
    assert found, f"expected {PLANTED[kernel]}, got: {report}"
    first, last = lines_of(kernel)
    for finding in found:
        file, line = finding.location.place.split(":")
        assert file == "bugs.metal"
        assert first <= int(line) <= last
        assert finding.kernel == kernel


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("kernel", CORRECT)
def test_correct_kernel_is_silent(kernel, shuffle):
    report, out = run(kernel, shuffle=shuffle)
    assert not report, str(report)
    if kernel == "good_divergence":
        assert np.all(out[:32] // 100000 == 32)


def test_fast_build_stops_at_guard_pages():
    for kernel, kind in (("oob_device_read", "out-of-bounds"), ("stack_overflow", "stack-overflow")):
        report, _ = run(kernel, checked=False)
        assert kind in report.kinds
        first, last = lines_of(kernel)
        assert first <= int(report.findings[0].location.place.split(":")[1]) <= last


WILD = """
#include <metal_stdlib>
using namespace metal;
kernel void wild_write(constant ulong& where [[buffer(0)]]) { *(device int*)where = 7; }
kernel void wild_atomic(constant ulong& where [[buffer(0)]]) {
    atomic_store_explicit((device atomic_int*)where, 7, memory_order_relaxed);
}
__attribute__((noinline)) void put(thread int* at, long distance) { at[distance] = 7; }
kernel void foreign_stack(device int* out [[buffer(0)]], constant long& distance [[buffer(1)]],
                          uint i [[thread_position_in_grid]]) {
    int mine[8];
    for (int j = 0; j < 8; ++j) mine[j] = j;
    threadgroup_barrier(mem_flags::mem_none);
    if (i == 1) put(mine, distance);
    out[i] = mine[i % 8];
}
"""


@pytest.mark.parametrize("kernel", ["wild_write", "wild_atomic"])
def test_a_write_outside_every_buffer_does_not_happen(kernel):
    victim = np.zeros(4, np.int32)
    with pytest.raises(msl.KernelFaultError, match=r"wild-access: (write|atomic access) of 4 bytes"):
        msl.compile(WILD).kernel(kernel).dispatch(1, 1, [np.uint64(victim.ctypes.data)])
    assert not victim.any()


@pytest.mark.parametrize("slots", [-1, 1])
def test_a_write_to_another_stack_ends_the_dispatch(slots):
    slot = 128 * 1024 + 4096
    with pytest.raises(msl.KernelFaultError, match="foreign-stack: write"):
        out = msl.Output(np.zeros(64, np.int32))
        msl.compile(WILD).kernel("foreign_stack").dispatch(1, 64, [out, np.int64(slots * slot // 4)])
