"""What a kernel can be given besides arrays and bytes: persistent buffers and outputs."""

import ctypes
import math
from dataclasses import dataclass

import numpy as np

from . import native
from .host_arrays import host_span


class Buffer:
    """Device memory that lives on between dispatches, like an MTLBuffer: contents, and which bytes were ever written.

    Args:
        data: array whose contents are copied in, or a number of bytes of undefined contents.
        name: how reports call it.
    """

    def __init__(self, data, name: str = "buffer"):
        empty = isinstance(data, int)
        self.nbytes = data if empty else host_span(data, "data").nbytes
        self.name = name
        self._native = native.runtime().msl_buffer_new(self.nbytes, 0, False, name.encode())
        if empty:
            native.runtime().msl_buffer_undefine(self._native, None)
        else:
            self.write(data)

    @property
    def address(self) -> int:
        return native.runtime().msl_buffer_address(self._native)

    def write(self, data) -> None:
        """Copies an array into the start of the buffer; from now on every byte counts as written."""
        span = host_span(data, "data")
        if span.nbytes > self.nbytes:
            raise ValueError(f"Buffer.write: expected at most {self.nbytes} bytes, got {span.nbytes}")
        ctypes.memmove(self.address, span.low, span.nbytes)
        native.runtime().msl_buffer_filled(self._native)

    def numpy(self, dtype, shape=None) -> np.ndarray:
        """A copy of the contents."""
        dtype = np.dtype(dtype)
        data = ctypes.string_at(self.address, self.nbytes // dtype.itemsize * dtype.itemsize)
        array = np.frombuffer(bytearray(data), dtype)
        return array if shape is None else array[: math.prod(np.atleast_1d(shape))].reshape(shape)

    def __del__(self):
        if getattr(self, "_native", None):
            native.runtime().msl_buffer_free(self._native)
            self._native = None


@dataclass(frozen=True)
class Output:
    """An array whose contents are undefined until the kernel writes them.

    A checked dispatch reports what is read before, and elements that are never written.
    """

    array: object
