"""With any barrier left out of a correct kernel a checked run notices, or the barrier is known to be idle."""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from torch_mtl4 import msl
from torch_mtl4.msl import toolchain
from torch_mtl4.msl.compile import preprocessed
from torch_mtl4.msl.frontend import count_barriers
from torch_mtl4.msl.kernel import LAYOUTS
from torch_mtl4.msl.tiers import DEFAULT_TIER

from .conftest import KERNELS

RNG = np.random.default_rng(0)
ORDERS = [{}, *({"shuffle": True, "seed": seed} for seed in (1, 2, 3))]


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float16)


@dataclass
class Launch:
    """One dispatch, and whether its results are wrong; None leaves that to the tests of the kernel."""

    groups: object
    threadgroup: int
    buffers: list
    wrong: Callable[[], bool] | None = None


def row_sum():
    x, out = RNG.random((2, 300), np.float32), np.zeros(2, np.float32)
    return Launch(2, 256, [x, msl.Output(out), np.uint32(300)])


def histogram():
    x, counts = RNG.integers(0, 256, 512).astype(np.uint8), np.zeros(256, np.uint32)
    expected = np.bincount(x, minlength=256)
    return Launch(2, 256, [x, counts], lambda: not np.array_equal(counts, expected))


def matmul_sg():
    sizes = np.array([32, 32, 64, 0], np.uint32)
    return Launch(1, 128, [normal(32, 64), normal(64, 32), msl.Output(np.zeros((32, 32), np.float32)), sizes])


def flash_attention():
    q, k, v = normal(1, 64, 64), normal(1, 77, 64), normal(1, 77, 64)
    return Launch((1, 1), 128, [q, k, v, msl.Output(np.zeros_like(q)), struct.pack("<iifi", 64, 77, 0.125, 0)])


def bugs(outputs):
    x = RNG.random(128, np.float32)
    return lambda: Launch(4, 128, [x, msl.Output(np.zeros(outputs, np.float32)), np.uint32(3)])


# The kernels that have barriers.
CASES = {
    "a_basic": {"row_sum": row_sum, "histogram": histogram},
    "b_simdgroup_matmul": {"matmul_sg": matmul_sg},
    "d_flash_attention": {"flash_attention": flash_attention},
    "bugs": {"good_reduce": bugs(4), "good_half_neighbours": bugs(512)},
}
# Barriers that order nothing here, by their number in the text, and why.
IDLE = {
    ("d_flash_attention", 0): "in each layout that is played, a lane loads what it has stored itself",
    ("d_flash_attention", 1): "as 0",
    ("d_flash_attention", 3): "only the last tile of keys is ragged: nothing is stored after it",
}


def barriers(name):
    """(number of the barrier in the text, the kernel it stands in)."""
    text, _ = preprocessed(KERNELS / f"{name}.metal", "", (), None, DEFAULT_TIER)
    calls = re.compile(r"\b(?:threadgroup|simdgroup)_barrier\s*\(|kernel void (\w+)")
    kernel, found = None, []
    for match in calls.finditer(text):
        if match.group(1):
            kernel = match.group(1)
        else:
            found.append(kernel)
    assert len(found) == count_barriers(text)
    return [(n, kernel) for n, kernel in enumerate(found) if kernel in CASES[name]]


MUTANTS = [(name, kernel, n) for name in CASES for n, kernel in barriers(name)]


def noticed(name, kernel, without_barrier=None):
    """(the findings, is a result wrong?) over all orders and layouts."""
    lib = msl.compile(KERNELS / f"{name}.metal", only=f"^{kernel}$", without_barrier=without_barrier)
    wrong = False
    for layout in LAYOUTS if name == "d_flash_attention" else ["m5"]:
        for order in ORDERS:
            launch = CASES[name][kernel]()
            lib.kernel(kernel).dispatch(launch.groups, launch.threadgroup, launch.buffers, layout=layout, **order)
            wrong |= bool(launch.wrong and launch.wrong())
    return lib.report, wrong


def test_there_are_barriers_to_remove():
    assert len(MUTANTS) >= 11
    assert {kernel for _, kernel, _ in MUTANTS} == {kernel for kernels in CASES.values() for kernel in kernels}


@pytest.mark.parametrize("name", CASES)
def test_unchanged_kernels_are_silent(name):
    for kernel in CASES[name]:
        report, wrong = noticed(name, kernel)
        assert not report, str(report)
        assert not wrong


@pytest.mark.parametrize(("name", "kernel", "n"), MUTANTS, ids=lambda value: str(value))
def test_missing_barrier_is_noticed(name, kernel, n):
    report, wrong = noticed(name, kernel, n)
    if (name, n) in IDLE:
        assert not report, f"no longer idle: {report}"
        return
    assert wrong or "race" in report.kinds
    for finding in report:
        assert finding.location.path.endswith(f"{name}.metal")


def test_a_qualified_name_goes_as_a_whole():
    source = """#include <metal_stdlib>
kernel void k(device int* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
    threadgroup int x[64];
    x[i] = int(i);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    out[i] = x[63 - i];
}"""
    for without in (None, 0):
        lib = msl.compile(source, without_barrier=without)
        lib.kernel("k").dispatch(1, 64, [msl.Output(np.zeros(64, np.int32))])
        assert lib.report.kinds <= {"race", "uninitialised-read"} and bool(lib.report) == (without == 0)


def test_removing_a_barrier_that_is_not_there():
    text = toolchain.preprocess(KERNELS / "a_basic.metal", "a_basic.metal", [])
    with pytest.raises(ValueError, match="compile: expected without_barrier from 0 to"):
        msl.compile(KERNELS / "a_basic.metal", without_barrier=count_barriers(text))
