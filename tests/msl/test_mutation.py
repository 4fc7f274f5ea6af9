"""Every barrier is needed and watched: with any one left out of a correct kernel, a checked run finds something."""

import re
import struct

import numpy as np
import pytest

from torch_mtl4 import msl
from torch_mtl4.msl import toolchain
from torch_mtl4.msl.compile import preprocessed
from torch_mtl4.msl.frontend import count_barriers
from torch_mtl4.msl.tiers import DEFAULT_TIER

from .conftest import KERNELS

RNG = np.random.default_rng(0)
ORDERS = [{}, *({"shuffle": True, "seed": seed} for seed in (1, 2, 3))]


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float16)


def row_sum():
    x, out = RNG.random((2, 300), np.float32), np.zeros(2, np.float32)
    return 2, 256, [x, msl.Output(out), np.uint32(300)]


def histogram():
    return 2, 256, [RNG.integers(0, 256, 512).astype(np.uint8), np.zeros(256, np.uint32)]


def matmul_sg():
    sizes = np.array([32, 32, 64, 0], np.uint32)
    return 1, 128, [normal(32, 64), normal(64, 32), msl.Output(np.zeros((32, 32), np.float32)), sizes]


def flash_attention():
    q, k, v = (normal(1, 64, 64) for _ in range(3))
    return (1, 1), 128, [q, k, v, msl.Output(np.zeros_like(q)), struct.pack("<iifi", 64, 64, 0.125, 0)]


def bugs(outputs):
    def arguments():
        return 4, 128, [RNG.random(128, np.float32), msl.Output(np.zeros(outputs, np.float32)), np.uint32(3)]

    return arguments


# The kernels that have barriers, and the layouts in which each barrier orders something.
CASES = {
    "a_basic": {"row_sum": (row_sum, ["m5"]), "histogram": (histogram, ["m5"])},
    "b_simdgroup_matmul": {"matmul_sg": (matmul_sg, ["m5"])},
    "d_flash_attention": {"flash_attention": (flash_attention, ["scrambled"])},
    "bugs": {"good_reduce": (bugs(4), ["m5"]), "good_half_neighbours": (bugs(512), ["m5"])},
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


def findings(name, kernel, without_barrier=None):
    lib = msl.compile(KERNELS / f"{name}.metal", only=f"^{kernel}$", without_barrier=without_barrier)
    arguments, layouts = CASES[name][kernel]
    for layout in layouts:
        for order in ORDERS:
            lib.kernel(kernel).dispatch(*arguments(), layout=layout, **order)
    return lib.report


def test_there_are_barriers_to_remove():
    assert len(MUTANTS) >= 11
    assert {kernel for _, kernel, _ in MUTANTS} == {kernel for kernels in CASES.values() for kernel in kernels}


@pytest.mark.parametrize("name", CASES)
def test_unchanged_kernels_are_silent(name):
    for kernel in CASES[name]:
        report = findings(name, kernel)
        assert not report, str(report)


@pytest.mark.parametrize(("name", "kernel", "n"), MUTANTS, ids=lambda value: str(value))
def test_missing_barrier_is_noticed(name, kernel, n):
    report = findings(name, kernel, n)
    assert "race" in report.kinds
    lines = (KERNELS / f"{name}.metal").read_text().splitlines()
    for finding in report:
        assert finding.location.path.endswith(f"{name}.metal")
        assert lines[finding.location.line - 1].strip()


def test_removing_a_barrier_that_is_not_there():
    text = toolchain.preprocess(KERNELS / "a_basic.metal", "a_basic.metal", [])
    with pytest.raises(ValueError, match="compile: expected without_barrier from 0 to"):
        msl.compile(KERNELS / "a_basic.metal", without_barrier=count_barriers(text))
