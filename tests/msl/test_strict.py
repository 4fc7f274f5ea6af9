"""The address-space pass accepts correct kernels and rejects every mistake of strict_bad.metal."""

import pytest

from torch_mtl4 import msl

from .conftest import KERNELS


@pytest.mark.parametrize(
    "name", ["a_basic", "b_simdgroup_matmul", "c_tensorops_matmul", "d_flash_attention", "strict_bad"]
)
def test_correct_kernels_are_accepted(name):
    result = msl.check(KERNELS / f"{name}.metal")
    assert result, result.diagnostics


@pytest.mark.parametrize("mistake", [f"E{i}" for i in range(1, 11)])
def test_mistake_is_rejected(mistake):
    source = (KERNELS / "strict_bad.metal").read_text().splitlines()
    line = source.index(f"#ifdef {mistake}") + 2
    result = msl.check(KERNELS / "strict_bad.metal", defines={mistake: 1})
    assert not result
    assert result.errors
    assert f"strict_bad.metal:{line}:" in result.diagnostics
