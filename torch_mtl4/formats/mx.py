"""Microscaling (MX) blocks: 32 elements along the last dimension that share one e8m0 scale.

Source: OCP Microscaling Formats (MX) Specification v1.0, sections 5.1 (blocks), 5.4.1 (e8m0) and 6.3 (conversion).
"""

import enum
import math

import torch
from torch import Tensor

from torch_mtl4.formats.element import ElementFormat

BLOCK_SIZE = 32
E8M0_BIAS = 127
E8M0_NAN = 255


class ScalingMode(str, enum.Enum):
    """How the exponent of a block's scale follows from the block's largest magnitude, amax = m * 2^e with 1 <= m < 2.

    With E the largest exponent of the element format (8 for e4m3) and M its largest value (448):
    """

    FLOOR = "floor"  # e - E: the conversion of the specification; clips where m * 2^E exceeds M
    RCEIL = "rceil"  # the smallest scale with amax <= M * scale: never clips
    CEIL = "ceil"  # e - E, plus 1 where m > 1: never clips, and wastes a bit of range more often
    EVEN = "even"  # e - E of amax rounded to the element's mantissa


def e8m0_values() -> Tensor:
    """What the 256 scale bytes stand for, float64: 2^(byte - 127), and NaN for 255."""
    return torch.tensor([*(math.ldexp(1.0, b - E8M0_BIAS) for b in range(255)), math.nan], dtype=torch.float64)


def block_scale(amax: Tensor, element: ElementFormat, mode: ScalingMode) -> Tensor:
    """The scale bytes, uint8, of blocks with these largest magnitudes.

    NaN and Inf give 255, the scale that makes the whole block NaN: an element format without infinities cannot hold
    Inf, and a scale large enough to saturate it would flush the other values of its block to zero unseen.
    """
    mantissa, exponent = torch.frexp(amax.double().nan_to_num(nan=1.0, posinf=1.0))  # mantissa in [0.5, 1), or 0
    exponent = exponent - 1 - element.max_exponent
    if mode == ScalingMode.RCEIL:
        exponent = exponent + (mantissa > math.ldexp(element.max, -element.max_exponent - 1)).int()
    elif mode == ScalingMode.CEIL:
        exponent = exponent + (mantissa > 0.5).int()
    elif mode == ScalingMode.EVEN:
        half_step = 2.0 ** -(element.mantissa_bits + 2)
        exponent = exponent + (mantissa >= 1 - half_step).int()
    byte = (exponent + E8M0_BIAS).clamp(0, E8M0_NAN - 1)
    byte = torch.where(amax == 0, 0, byte)
    return torch.where(amax.isfinite(), byte, E8M0_NAN).to(torch.uint8)
