"""Weights of 4 and 8 bits in blocks along a row that share a scale: their bytes, and the values of these.

Two elements of 4 bits stand in a byte, the even one in its low half. A block is a number of elements, or a whole row
where it is 0; the last block of a row may be shorter. Scales are e8m0 bytes, or floats of the weight's own dtype.

Source: OCP Microscaling Formats (MX) Specification v1.0, sections 5.1 and 5.3.3 (e2m1); coreai-opt 0.4, whose bytes
these are (symmetric integers span 2 * amax in 2^bits - 1 steps).
"""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_mtl4.formats.element import E2M1, ElementFormat
from torch_mtl4.formats.mx import ScalingMode, block_scale, e8m0_values


@dataclass(frozen=True)
class BlockFormat:
    """One such format.

    Attributes:
        name: "mxfp4", "int4" or "int8".
        bits: of an element.
        element: the floating-point format of the elements; None for two's complement.
        block: elements that share a scale, unless something else is asked for; 0 is a row.
    """

    name: str
    bits: int
    element: ElementFormat | None
    block: int

    @property
    def per_byte(self) -> int:
        return 8 // self.bits

    @property
    def scale_dtype(self) -> torch.dtype | None:
        """uint8 for e8m0 bytes; None for floats, of any of the three dtypes."""
        return torch.uint8 if self.element is not None else None

    def data_shape(self, *shape: int) -> tuple[int, ...]:
        """Of the bytes of a weight of this shape."""
        return (*shape[:-1], -(-shape[-1] // self.per_byte))

    def scale_shape(self, *shape: int, block: int) -> tuple[int, ...]:
        """Of its scales."""
        return (*shape[:-1], -(-shape[-1] // (block or max(shape[-1], 1))))

    @functools.lru_cache  # noqa: B019  formats live as long as the module
    def table(self) -> Tensor:
        """float32 [256, elements a byte]: what the bytes stand for."""
        shifts = 2 ** (self.bits * torch.arange(self.per_byte))
        codes = torch.arange(256)[:, None] // shifts
        codes = codes % 2**self.bits
        if self.element is not None:
            return self.element.decode(codes).float()
        return torch.where(codes < 2 ** (self.bits - 1), codes, codes - 2**self.bits).float()

    def quantize(self, weight: Tensor, block: int, scaling: str = "floor") -> tuple[Tensor, Tensor]:
        """The bytes and scales of a weight.

        Args:
            weight: [..., K] float32, bfloat16 or float16; finite for integers.
            block: elements that share a scale, 0 for a row.
            scaling: of e8m0 scales, see `torch_mtl4.mxfp8_quantize`.

        Returns:
            data: uint8, two elements of 4 bits in a byte, the even one low.
            scale: uint8, or weight's dtype.
        """
        k = weight.shape[-1]
        count = self.scale_shape(*weight.shape, block=block)[-1]
        size = block or max(k, 1)
        blocks = torch.nn.functional.pad(weight.float(), (0, count * size - k)).unflatten(-1, (count, size))
        amax = blocks.abs().amax(-1)
        if self.element is not None:
            scale = block_scale(amax, self.element, ScalingMode(scaling))
            codes = self.element.encode(blocks.double() / e8m0_values().to(scale.device)[scale.long()][..., None])
            codes = torch.where(blocks.isnan(), 0, codes)
        else:
            # amax is taken in weight's dtype, and the steps are those of the scale as it is stored.
            steps = (2**self.bits - 1) / 2
            scale = (amax / steps).clamp(min=torch.finfo(torch.float32).eps).to(weight.dtype)
            low, high = -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1
            codes = (blocks / scale.float()[..., None]).round().clamp(low, high).to(torch.int16) % 2**self.bits
        return self.pack(codes.flatten(-2)[..., :k]), scale

    def pack(self, codes: Tensor) -> Tensor:
        """Bytes uint8 of codes [..., K] of whole numbers 0 <= code < 2^bits; zeros fill the last byte."""
        if self.per_byte == 1:
            return codes.to(torch.uint8)
        pairs = torch.nn.functional.pad(codes, (0, codes.shape[-1] % 2)).to(torch.uint8)
        return pairs[..., 0::2] | pairs[..., 1::2] << self.bits

    def dequantize(self, data: Tensor, scale: Tensor, k: int, block: int) -> Tensor:
        """float32 [..., k] of the bytes and scales."""
        values = self.table().to(data.device)[data.int()].flatten(-2)[..., :k]
        is_byte = scale.dtype == torch.uint8
        factors = e8m0_values().float().to(scale.device)[scale.int()] if is_byte else scale.float()
        return values * _spread(factors, k, block)


def _spread(factors: Tensor, k: int, block: int) -> Tensor:
    """[..., k]: the factor of each element's block. Made of what exporters know."""
    if block == 0:
        return factors
    return factors[..., None].expand(*factors.shape, block).flatten(-2)[..., :k]


FORMATS = {
    f.name: f
    for f in (
        BlockFormat("mxfp4", bits=4, element=E2M1, block=32),
        BlockFormat("int4", bits=4, element=None, block=32),
        BlockFormat("int8", bits=8, element=None, block=0),
    )
}
