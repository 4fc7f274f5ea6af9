"""What a kernel can be given: host arrays, bytes, persistent buffers, tensors; and how they reach guarded memory."""

import ctypes
import math
import sys
from dataclasses import dataclass

import numpy as np

from . import native


class Buffer:
    """Device memory that lives on between dispatches, like an MTLBuffer: contents, and which bytes were ever written.

    Args:
        data: array whose contents are copied in, or a number of bytes of undefined contents.
        name: how reports call it.
    """

    def __init__(self, data, name: str = "buffer"):
        empty = isinstance(data, int)
        self.nbytes = data if empty else _span(data).nbytes
        self.name = name
        self._native = native.runtime().msl_buffer_new(self.nbytes, empty, False, name.encode())
        if not empty:
            self.write(data)

    @property
    def address(self) -> int:
        return native.runtime().msl_buffer_address(self._native)

    def write(self, data) -> None:
        """Copies an array into the start of the buffer."""
        span = _span(data)
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
    """An array whose contents are undefined until the kernel writes them: reading one earlier is reported."""

    array: object


@dataclass(frozen=True)
class Tensor:
    """A tensor_handle: memory with extents and strides in elements, innermost dimension first as in MSL.

    An array that is bound without this wrapper has its own shape and strides, reversed.
    """

    value: object
    extents: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0

    def binding(self, address: int) -> native.TensorBinding:
        strides = self.strides
        if strides is None:
            strides = [math.prod(self.extents[:d]) for d in range(len(self.extents))]
        if len(strides) != len(self.extents) or not 1 <= len(self.extents) <= 8:
            raise ValueError(f"Tensor: expected 1 to 8 extents and as many strides, got {self.extents} and {strides}")
        tensor = native.TensorBinding(data=address, rank=len(self.extents))
        tensor.extents[: len(strides)] = self.extents
        tensor.strides[: len(strides)] = strides
        return tensor


@dataclass
class HostSpan:
    """The bytes of a host array: `low` is the first, `first` the address of element [0, 0, ...]."""

    low: int
    nbytes: int
    first: int
    writable: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    keep: object

    @property
    def high(self) -> int:
        return self.low + self.nbytes

    def tensor(self, address: int) -> native.TensorBinding | None:
        if not 1 <= len(self.shape) <= 8:
            return None
        return Tensor(None, self.shape[::-1], self.strides[::-1]).binding(address)


def _span(value, what: str = "buffers") -> HostSpan:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout != torch.strided or value.is_conj() or value.is_neg():
            raise ValueError(f"dispatch: expected {what} to be plain strided CPU tensors, got {value.device} tensor")
        return _strided(value.data_ptr(), value.shape, value.stride(), value.element_size(), True, value)
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"dispatch: expected {what} to hold numbers, got dtype object")
        size = value.itemsize
        if any(stride % size for stride in value.strides):
            raise ValueError(f"dispatch: expected {what} with strides of whole elements, got {value.strides} bytes")
        strides = [stride // size for stride in value.strides]
        return _strided(value.ctypes.data, value.shape, strides, size, value.flags.writeable, value)
    if isinstance(value, (bytes, bytearray, memoryview, np.generic, ctypes.Structure, ctypes.Array)):
        data = np.frombuffer(memoryview(value).tobytes(), np.uint8)
        return _strided(data.ctypes.data, data.shape, [1], 1, False, data)
    raise TypeError(
        f"dispatch: expected {what} to be arrays, tensors, bytes, numpy scalars, Buffer, Output or Tensor, "
        f"got {type(value).__name__}" + (" (say np.uint32(...) or bytes)" if isinstance(value, (int, float)) else "")
    )


def _strided(pointer, shape, strides, itemsize, writable, keep) -> HostSpan:
    shape, strides = tuple(map(int, shape)), tuple(map(int, strides))
    if math.prod(shape) == 0:
        return HostSpan(pointer, 0, pointer, writable, shape, strides, keep)
    reach = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    low = pointer + itemsize * sum(min(0, r) for r in reach)
    nbytes = itemsize * (1 + sum(abs(r) for r in reach))
    return HostSpan(low, nbytes, pointer, writable, shape, strides, keep)


@dataclass
class _Argument:
    index: int
    name: str
    readonly: bool
    span: HostSpan | None = None
    buffer: Buffer | None = None
    tensor: Tensor | None = None
    offset: int = 0
    uninitialised: bool = False


class BoundBuffers:
    """The buffers of one dispatch: host arrays are copied into guarded memory, and back by `copy_back`.

    Arrays that overlap share one buffer, as views of one allocation do on the device.
    """

    def __init__(self, arguments: dict, parameters: dict):
        self._native = native.runtime()
        self._copies: list[tuple[int, int, int, int]] = []
        self._keep: list = []
        self.bindings: list[native.Binding] = []
        hosted = []
        for index, value in arguments.items():
            if value is None:
                continue
            argument = _argument(index, value, parameters.get(index))
            if argument.buffer is not None:
                self._bind(argument, argument.buffer._native, argument.offset)
                self._keep.append(argument.buffer)
            else:
                hosted.append(argument)
        for group in _overlapping(hosted):
            self._bind_group(group)

    def _bind_group(self, group: list[_Argument]) -> None:
        low = min(a.span.low for a in group)
        high = max(a.span.high for a in group)
        readonly = all(a.readonly for a in group)
        uninitialised = all(a.uninitialised for a in group)
        buffer = self._native.msl_buffer_new(high - low, uninitialised, readonly, group[0].name.encode())
        address = self._native.msl_buffer_address(buffer)
        if not uninitialised:
            ctypes.memmove(address, low, high - low)
        self._copies.append((buffer, address, low, 0 if readonly else high - low))
        for argument in group:
            self._bind(argument, buffer, argument.offset + argument.span.first - low)
            self._keep.append(argument.span.keep)

    def _bind(self, argument: _Argument, buffer: int, offset: int) -> None:
        address = self._native.msl_buffer_address(buffer) + offset
        tensor = None
        if argument.tensor is not None:
            tensor = argument.tensor.binding(address)
        elif argument.span is not None:
            tensor = argument.span.tensor(address)
        self._keep.append(tensor)
        pointer = ctypes.pointer(tensor) if tensor is not None else None
        self.bindings.append(native.Binding(argument.index, buffer, offset, pointer))

    def copy_back(self) -> None:
        for _, address, host, nbytes in self._copies:
            ctypes.memmove(host, address, nbytes)

    def release(self) -> None:
        for buffer, *_ in self._copies:
            self._native.msl_buffer_free(buffer)
        self._copies.clear()


def _argument(index: int, value, parameter) -> _Argument:
    name = parameter.name if parameter else f"buffer({index})"
    argument = _Argument(index, name, readonly=bool(parameter and parameter.constant))
    if isinstance(value, Output):
        argument.uninitialised, value = True, value.array
    if isinstance(value, Tensor):
        argument.tensor, argument.offset, value = value, value.offset, value.value
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int):
        value, argument.offset = value
    if isinstance(value, Buffer):
        argument.buffer = value
        return argument
    argument.span = _span(value, f"buffers[{index}] ({name})")
    if argument.uninitialised and not argument.span.writable:
        raise ValueError(f"dispatch: expected buffers[{index}] ({name}) to be writable, since it is an Output")
    argument.readonly |= not argument.span.writable
    return argument


def _overlapping(arguments: list[_Argument]) -> list[list[_Argument]]:
    groups: list[list[_Argument]] = []
    high = -1
    for argument in sorted(arguments, key=lambda a: a.span.low):
        if argument.span.low < high and argument.span.nbytes:
            groups[-1].append(argument)
        else:
            groups.append([argument])
        high = max(high, argument.span.high)
    return groups
