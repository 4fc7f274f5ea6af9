"""Tensors as arguments of a dispatch, with the rules that Metal has for an MTLTensor."""

import math
from dataclasses import dataclass

from . import native
from .host_arrays import HostSpan, host_span

FORMAT_BITS = {
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "fp4_e2m1": 4,
    "fp8_e4m3": 8,
    "fp8_e5m2": 8,
}
_ALIGNMENT = 128  # bytes, of rows and offsets of tensors of a format
_FIRST_DIMENSION = 32  # elements, of which the first dimension is a multiple
_SCALED_BLOCK = 32


@dataclass(frozen=True)
class Tensor:
    """A tensor_handle: memory with extents and strides in elements, innermost dimension first as in MSL.

    An array that is bound without this wrapper has its own shape and strides, reversed.

    Args:
        value: the memory: an array, bytes or a `Buffer`.
        extents, strides: of each dimension; without strides the tensor is dense.
        offset: in bytes.
        format: "int4", "fp8_e4m3", ... if the elements are of a format, `FORMAT_BITS` has them all. Then the first
            dimension must be a multiple of 32, the other strides and the offset multiples of 128 bytes.
        scales: bytes of UE8M0, one for 32 elements of the first dimension, rows dense.
    """

    value: object
    extents: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0
    format: str | None = None
    scales: object = None

    def __post_init__(self):
        strides = self._dense_or_given()
        if len(strides) != len(self.extents) or not 1 <= len(self.extents) <= 8:
            raise ValueError(f"Tensor: expected 1 to 8 extents and as many strides, got {self.extents} and {strides}")
        if self.format is not None:
            self._check_format(strides)
        if self.scales is not None and FORMAT_BITS.get(self.format or "", 8) > 8:
            raise ValueError(f"Tensor: expected elements of at most 8 bits with scales, got {self.format}")
        if self.scales is not None and self.extents[0] % _SCALED_BLOCK:
            raise ValueError(f"Tensor: expected a first extent that 32 divides with scales, got {self.extents[0]}")

    def _dense_or_given(self) -> tuple[int, ...]:
        if self.strides is not None:
            return tuple(self.strides)
        return tuple(math.prod(self.extents[:d]) for d in range(len(self.extents)))

    def _check_format(self, strides: tuple[int, ...]) -> None:
        if self.format not in FORMAT_BITS:
            raise ValueError(f"Tensor: expected format to be one of {', '.join(FORMAT_BITS)}, got {self.format!r}")
        bits = FORMAT_BITS[self.format]
        if self.extents[0] % _FIRST_DIMENSION:
            raise ValueError(
                f"Tensor: expected a first extent that 32 divides for {self.format}, got {self.extents[0]}"
            )
        if strides[0] != 1:
            raise ValueError(f"Tensor: expected a first stride of 1, got {strides[0]}")
        if any(stride * bits % (8 * _ALIGNMENT) for stride in strides[1:]):
            unit = 8 * _ALIGNMENT // bits
            raise ValueError(
                f"Tensor: expected strides of {self.format} that {unit} divides (128 bytes), got {strides}"
            )
        if self.offset % _ALIGNMENT:
            raise ValueError(f"Tensor: expected an offset that 128 divides for {self.format}, got {self.offset}")

    def binding(self) -> native.TensorBinding:
        """What the kernel is given; `data` and `scales` are filled in when the memory is placed."""
        strides = self._dense_or_given()
        tensor = native.TensorBinding(rank=len(self.extents))
        tensor.extents[: len(strides)] = self.extents
        tensor.strides[: len(strides)] = strides
        return tensor

    def scales_span(self, what: str) -> HostSpan:
        """The memory of the scales, if there are enough of them."""
        span = host_span(self.scales, what)
        count = -(-self.extents[0] // _SCALED_BLOCK) * math.prod(self.extents[1:])
        if span.itemsize != 1 or not span.dense or span.nbytes < count:
            raise ValueError(f"dispatch: expected {what} to be {count} bytes, got {span.nbytes} as {span.dtype}")
        return span
