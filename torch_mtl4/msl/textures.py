"""Textures and samplers as arguments of a dispatch."""

from dataclasses import dataclass

from . import native
from .host_arrays import HostSpan, host_span

# Pixel formats of components, as MslPixelFormat in runtime/abi.h counts them: by dtype, plain and normalized.
_FORMATS = {
    "float32": (0, None),
    "float16": (1, None),
    "uint8": (6, 2),
    "int8": (7, 3),
    "uint16": (8, 4),
    "int16": (9, 5),
    "uint32": (10, None),
    "int32": (11, None),
}
_ADDRESS_MODES = ("clamp_to_edge", "clamp_to_zero", "clamp_to_border", "repeat", "mirrored_repeat")
_BORDERS = ("transparent_black", "opaque_black", "opaque_white")
_FILTERS = ("nearest", "linear")


@dataclass(frozen=True)
class Texture:
    """A texture with one level of detail, made of an array.

    Args:
        array: [height, width], [height, width, channels], or [layers, height, width, channels] for a texture2d_array,
            with 1, 2 or 4 channels; rows may be padded, pixels are contiguous. Written in place. The dtype is the pixel
            format: float32, float16, or integers of 8, 16 or 32 bits.
        normalized: 8- and 16-bit integers stand for [0, 1] or [-1, 1], and the kernel sees floats.
    """

    array: object
    normalized: bool = False

    def span(self, what: str) -> HostSpan:
        """The memory of the array, if it can be a texture."""
        span = host_span(self.array, what)
        if span.dtype not in _FORMATS:
            raise TypeError(f"dispatch: expected {what} to hold {', '.join(_FORMATS)}, got {span.dtype}")
        if self.normalized and _FORMATS[span.dtype][1] is None:
            raise TypeError(f"dispatch: expected normalized {what} to hold 8- or 16-bit integers, got {span.dtype}")
        shapes = "[height, width(, 1, 2 or 4 channels)] or [layers, height, width, channels]"
        if not 2 <= len(span.shape) <= 4 or 0 in span.shape or self._shape(span)[3] not in (1, 2, 4):
            raise ValueError(f"dispatch: expected {what} to be {shapes}, got {list(span.shape)}")
        _, height, width, channels = self._shape(span)
        _, row, pixel, component = self._strides(span)
        gaps = (channels > 1 and component != 1) or (width > 1 and pixel != channels)
        if gaps or (height > 1 and row < width * channels):
            raise ValueError(f"dispatch: expected {what} to have contiguous pixels in rows, got strides {span.strides}")
        return span

    @staticmethod
    def _shape(span: HostSpan) -> tuple[int, ...]:
        """(layers, height, width, channels)."""
        shape = span.shape if len(span.shape) > 2 else (*span.shape, 1)
        return (*(1,) * (4 - len(shape)), *shape)

    @staticmethod
    def _strides(span: HostSpan) -> tuple[int, ...]:
        strides = span.strides if len(span.shape) > 2 else (*span.strides, 1)
        return (*(0,) * (4 - len(strides)), *strides)

    def binding(self, span: HostSpan) -> native.TextureBinding:
        """What the kernel is given; `data` is filled in when the memory is placed."""
        layers, height, width, channels = self._shape(span)
        layer, row, *_ = (stride * span.itemsize for stride in self._strides(span))
        pixel_format = _FORMATS[span.dtype][self.normalized]
        return native.TextureBinding(None, pixel_format, channels, width, height, layers, row, layer)


@dataclass(frozen=True)
class Sampler:
    """How a texture is sampled, as an MTLSamplerDescriptor says it.

    Args:
        filter: "nearest" or "linear".
        address: "clamp_to_edge", "clamp_to_zero", "clamp_to_border", "repeat" or "mirrored_repeat"; of both directions,
            or a pair.
        normalized: coordinates from 0 to 1, else in pixels.
        border: "transparent_black", "opaque_black" or "opaque_white".
    """

    filter: str = "nearest"
    address: str | tuple[str, str] = "clamp_to_edge"
    normalized: bool = True
    border: str = "transparent_black"

    def binding(self) -> native.Sampler:
        s, t = (self.address, self.address) if isinstance(self.address, str) else self.address
        linear = _position("filter", self.filter, _FILTERS)
        modes = [_position("address", mode, _ADDRESS_MODES) for mode in (s, t)]
        if not self.normalized and any(mode in ("repeat", "mirrored_repeat") for mode in (s, t)):
            raise ValueError(f"Sampler: expected normalized coordinates for address {self.address!r}, got pixels")
        return native.Sampler(self.normalized, linear, linear, *modes, _position("border", self.border, _BORDERS))


def _position(what: str, value: str, known: tuple[str, ...]) -> int:
    if value not in known:
        raise ValueError(f"Sampler: expected {what} to be one of {', '.join(known)}, got {value!r}")
    return known.index(value)
