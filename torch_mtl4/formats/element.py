"""Element formats: sign, exponent and mantissa bits of a code, and rounding to the nearest code.

Source: OCP 8-bit Floating Point Specification (OFP8) v1.0, section 5; OCP Microscaling Formats (MX) Specification
v1.0, section 5.3.
"""

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ElementFormat:
    """A binary floating-point format of at most 8 bits that has no infinities.

    value = (-1)^S * 2^(E - bias) * (1 + M / 2^mantissa_bits), or (-1)^S * 2^(1 - bias) * M / 2^mantissa_bits if E = 0
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    nan: int | None  # the code of NaN that has a zero sign bit, if there is one; always the largest code

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent_bits - 1) - 1

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.exponent_bits + self.mantissa_bits)

    @property
    def max(self) -> float:
        """The largest finite value."""
        return self.value(self.sign - 1 if self.nan is None else self.nan - 1)

    @property
    def max_exponent(self) -> int:
        """The exponent of the largest power of two that is a value."""
        return math.frexp(self.max)[1] - 1

    def value(self, code: int) -> float:
        """What one code stands for."""
        negative, magnitude = code & self.sign, code & (self.sign - 1)
        if magnitude == self.nan:
            return math.nan
        exponent, mantissa = magnitude >> self.mantissa_bits, magnitude & ((1 << self.mantissa_bits) - 1)
        if exponent > 0:
            mantissa += 1 << self.mantissa_bits
        size = math.ldexp(mantissa, max(exponent, 1) - self.bias - self.mantissa_bits)
        return -size if negative else size

    @functools.lru_cache  # noqa: B019  formats live as long as the module
    def values(self) -> Tensor:
        """What the codes stand for, in order, float64."""
        return torch.tensor([self.value(code) for code in range(2 * self.sign)], dtype=torch.float64)

    def encode(self, x: Tensor) -> Tensor:
        """The codes, uint8, of the values nearest to x; ties go to the even code, and overflow to the largest value."""
        size = x.double().abs().nan_to_num(nan=0.0, posinf=self.max).clamp(max=self.max)
        # Below the smallest normal number the quantum no longer shrinks.
        exponent = torch.where(size == 0, 1 - self.bias, (torch.frexp(size).exponent - 1).clamp(min=1 - self.bias))
        quantum_exponent = exponent - self.mantissa_bits
        steps = torch.round(torch.ldexp(size, -quantum_exponent)).long()  # half to even
        code = steps + ((exponent - (1 - self.bias)).long() << self.mantissa_bits)
        code = torch.where(torch.signbit(x), code | self.sign, code)
        if self.nan is not None:
            code = torch.where(x.isnan(), self.nan, code)
        return code.to(torch.uint8)

    def decode(self, codes: Tensor) -> Tensor:
        """The values of uint8 codes, float64."""
        return self.values().to(codes.device)[codes.long()]


E4M3 = ElementFormat("e4m3", exponent_bits=4, mantissa_bits=3, nan=0x7F)
E2M1 = ElementFormat("e2m1", exponent_bits=2, mantissa_bits=1, nan=None)
