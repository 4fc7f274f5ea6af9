"""Block scales: the exponent that each mode gives, at the edges where rounding goes wrong."""

import math

import pytest
import torch

from torch_mtl4 import testing
from torch_mtl4.formats import BLOCK_SIZE, E4M3, ScalingMode, block_scale, e8m0_values

# The largest magnitude of a block -> the scale byte that each mode gives it.
EDGES = {
    1.9999998807907104: {"floor": 119, "rceil": 120, "ceil": 120, "even": 120},  # the float32 below 2
    2.0: {"floor": 120, "rceil": 120, "ceil": 120, "even": 120},
    448.0: {"floor": 127, "rceil": 127, "ceil": 128, "even": 127},
    448.000030517578125: {"floor": 127, "rceil": 128, "ceil": 128, "even": 127},  # the float32 above 448
    449.0: {"floor": 127, "rceil": 128, "ceil": 128, "even": 127},
    495.0: {"floor": 127, "rceil": 128, "ceil": 128, "even": 127},
    496.0: {"floor": 127, "rceil": 128, "ceil": 128, "even": 128},  # 1.9375 * 2^8 rounds up to 2^9
    512.0: {"floor": 128, "rceil": 128, "ceil": 128, "even": 128},
    896.0: {"floor": 128, "rceil": 128, "ceil": 129, "even": 128},
    0.0: {"floor": 0, "rceil": 0, "ceil": 0, "even": 0},
    2.0**-149: {"floor": 0, "rceil": 0, "ceil": 0, "even": 0},  # the smallest float32
    2.0**-119: {"floor": 0, "rceil": 0, "ceil": 0, "even": 0},
    2.0**-118: {"floor": 1, "rceil": 1, "ceil": 1, "even": 1},
    1.75 * 2.0**-119: {"floor": 0, "rceil": 0, "ceil": 1, "even": 0},
    3.4028234663852886e38: {"floor": 246, "rceil": 247, "ceil": 247, "even": 247},  # the largest float32
    math.inf: {"floor": 255, "rceil": 255, "ceil": 255, "even": 255},
    math.nan: {"floor": 255, "rceil": 255, "ceil": 255, "even": 255},
}


@pytest.mark.parametrize("mode", list(ScalingMode))
def test_scale_bytes_at_the_edges(mode):
    amax = torch.tensor(list(EDGES), dtype=torch.float64)
    want = torch.tensor([modes[mode.value] for modes in EDGES.values()], dtype=torch.uint8)
    testing.assert_equal(block_scale(amax, E4M3, mode), want)


def test_scale_bytes_stand_for_powers_of_two():
    values = e8m0_values()
    assert values[:255].log2().tolist() == list(range(-127, 128)) and values[255].isnan()
    testing.assert_equal(torch.arange(256).to(torch.uint8).view(torch.float8_e8m0fnu).float(), values.float())
    assert values[0].item() == 2.0**-127 and values[254].item() == 2.0**127


def test_rceil_is_the_smallest_scale_that_does_not_clip():
    amax = testing.randn(2000).abs().double() * 2.0 ** testing.randn(2000, seed=1).mul(20).round().double()
    scale = e8m0_values()[block_scale(amax, E4M3, ScalingMode.RCEIL).long()]
    assert (amax <= 448 * scale).all() and (amax > 448 * scale / 2).all()


def test_modes_differ_by_at_most_one_step():
    amax = testing.randn(2000).abs()
    floor = block_scale(amax, E4M3, ScalingMode.FLOOR).int()
    for mode in (ScalingMode.RCEIL, ScalingMode.CEIL, ScalingMode.EVEN):
        steps = block_scale(amax, E4M3, mode).int() - floor
        assert set(steps.tolist()) <= {0, 1} and 1 in steps


def test_block_size():
    assert BLOCK_SIZE == 32
