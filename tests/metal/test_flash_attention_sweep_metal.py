"""flash_attention on the MSL runner, at length: every kernel of the source, and random combinations of everything."""

import attention_harness as harness
import pytest
import torch
from test_random_sweep import attention_case

from torch_mtl4 import _metal_sources, msl
from torch_mtl4.msl_backend import emulated

from .gpus import SIMDGROUP, TENSOR_OPS

pytestmark = pytest.mark.sweep

PREFILL_DIMS = ((24, 24), (80, 96), (128, 128), (130, 100), (130, 200))
DECODE_ROWS = {64: (1, 4, 8), 128: (1, 4, 8), 256: (1, 4), 576: (1, 2)}


def kernels_of(tier):
    return set(msl.check(_metal_sources.flattened("flash_attention"), tier=tier).kernels)


@pytest.mark.parametrize("dtype", harness.DTYPES, ids=str)
@pytest.mark.parametrize("caps", [SIMDGROUP[0], TENSOR_OPS[0]])
def test_every_kernel(caps, dtype):
    """Checked, which includes that threadgroup memory suffices."""
    cases = []
    for head_dim, v_head_dim in PREFILL_DIMS:
        cases.append(harness.inputs(18, 37, head_dim, v_head_dim=v_head_dim, heads=1, dtype=dtype))
    if caps == SIMDGROUP[0]:
        for head, rows in DECODE_ROWS.items():
            for heads in rows:
                cases.append(harness.inputs(1, 270, head, heads=heads, kv_heads=1, dtype=dtype))
    with emulated(caps) as emulation:
        for case in cases:
            harness.check(*case)
    ran = {name for name, _ in emulation.dispatches}
    suffix = {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bfloat"}[dtype]
    tier = "macos14" if caps == SIMDGROUP[0] else "macos26.2"
    assert ran == {name for name in kernels_of(tier) if suffix in name.split("_")}


@pytest.mark.parametrize("start", range(0, 200, 10))
@pytest.mark.parametrize("caps", [SIMDGROUP[0], TENSOR_OPS[0]])
def test_random_combinations(caps, start):
    for number in range(start, start + 10):
        tensors, options = attention_case(number)
        with emulated(caps, checked=number % 5 == 0, shuffle=number % 2 == 0, seed=number + 1):
            harness.check(*tensors, **options)


@pytest.mark.parametrize("layout", ["m5", "pre_m5", "scrambled"])
def test_random_combinations_under_every_layout(layout):
    for number in range(200, 212):
        tensors, options = attention_case(number)
        with emulated(TENSOR_OPS[0], checked=False, layout=layout):
            harness.check(*tensors, **options)
