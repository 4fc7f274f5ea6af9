"""The memory of host arrays: where it lies, which elements it has, how it is aligned in its allocation."""

import ctypes
import math
import sys
from dataclasses import dataclass

import numpy as np

ALIGNMENT = 64  # of an allocation: views keep their distance from it, so that a misaligned one is misaligned here too


@dataclass
class HostSpan:
    """The bytes of a host array: `low` is the lowest, `first` the address of element [0, 0, ...].

    Strides are in elements. `phase` is the distance of `low` from the alignment of its allocation.
    """

    low: int
    nbytes: int
    first: int
    phase: int
    writable: bool
    itemsize: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    keep: object

    @property
    def high(self) -> int:
        return self.low + self.nbytes

    @property
    def dense(self) -> bool:
        """Is every byte of the span part of an element?"""
        return self.nbytes == math.prod(self.shape) * self.itemsize

    def elements(self, memory: np.ndarray, low: int) -> np.ndarray:
        """A view of bytes that stand for those from address `low` on: the array's shape, then the bytes of one."""
        strides = [stride * self.itemsize for stride in self.strides]
        bytes_ = memory[self.first - low :]
        return np.lib.stride_tricks.as_strided(bytes_, (*self.shape, self.itemsize), (*strides, 1))


def host_span(value, what: str) -> HostSpan:
    """The memory of a tensor, an array, or something with the buffer protocol; the last as read-only bytes."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout != torch.strided or value.is_conj() or value.is_neg():
            raise ValueError(f"dispatch: expected {what} to be a plain strided CPU tensor, got {value.device} tensor")
        origin, dtype = value.untyped_storage().data_ptr(), str(value.dtype).removeprefix("torch.")
        layout = value.shape, value.stride(), value.element_size()
        return _strided(value.data_ptr(), origin, *layout, dtype, True, value)
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"dispatch: expected {what} to hold numbers, got dtype object")
        size = value.itemsize
        if any(stride % size for stride in value.strides):
            raise ValueError(f"dispatch: expected {what} with strides of whole elements, got {value.strides} bytes")
        root = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        layout = value.shape, [stride // size for stride in value.strides], size
        return _strided(value.ctypes.data, root.ctypes.data, *layout, value.dtype.name, value.flags.writeable, value)
    if isinstance(value, (bytes, bytearray, memoryview, np.generic, ctypes.Structure, ctypes.Array)):
        data = np.frombuffer(memoryview(value).tobytes(), np.uint8)
        dtype = value.dtype.name if isinstance(value, np.generic) else "uint8"
        itemsize = value.itemsize if isinstance(value, np.generic) else 1
        layout = (len(data) // itemsize,), [1], itemsize
        return _strided(data.ctypes.data, data.ctypes.data, *layout, dtype, False, data)
    raise TypeError(
        f"dispatch: expected {what} to be an array, tensor, bytes, numpy scalar, Buffer, Output or Tensor, "
        f"got {type(value).__name__}" + (" (say np.uint32(...) or bytes)" if isinstance(value, (int, float)) else "")
    )


def _strided(first, origin, shape, strides, itemsize, dtype, writable, keep) -> HostSpan:
    shape, strides = tuple(map(int, shape)), tuple(map(int, strides))
    low, nbytes = first, 0
    if math.prod(shape):
        reach = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
        low += itemsize * sum(min(0, r) for r in reach)
        nbytes = itemsize * (1 + sum(abs(r) for r in reach))
    return HostSpan(low, nbytes, first, (low - origin) % ALIGNMENT, writable, itemsize, dtype, shape, strides, keep)
