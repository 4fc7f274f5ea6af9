"""Binds the buffers and textures of one dispatch: host arrays are copied into guarded memory, and back."""

import ctypes
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from . import native
from .buffers import Buffer, Output
from .cost import CONSTANT, DEVICE, TEXTURE
from .element_types import element_type, mismatch
from .frontend import Parameter
from .host_arrays import ALIGNMENT, HostSpan, host_span
from .tensors import Tensor
from .textures import Texture

_ELSEWHERE = -1  # index of memory that is reached through a texture or a tensor, not through a buffer argument


@dataclass
class _Argument:
    index: int
    name: str
    readonly: bool
    space: str = DEVICE
    order: int = 0  # among those of its kind, as reports list them
    span: HostSpan | None = None
    buffer: Buffer | None = None
    tensor: Tensor | None = None
    offset: int = 0
    output: bool = False
    placed: Callable[[int], None] | None = None
    tensor_binding: native.TensorBinding | None = None


@dataclass
class _Copy:
    """Arrays that share memory, and the guarded memory that stands for it."""

    buffer: int
    address: int
    low: int
    nbytes: int
    readonly: bool
    outputs: list[_Argument]


class BoundBuffers:
    """The buffers and textures of one dispatch.

    Arrays that overlap share one buffer, as views of one allocation do on the device. A None is an index that is
    left unbound on purpose.
    """

    def __init__(
        self, kernel: str, arguments: dict, parameters: Mapping[int, Parameter], textures: dict, checked: bool
    ):
        self._native = native.runtime()
        self._checked = checked
        self._copies: list[_Copy] = []
        self._keep: list = []
        self._bound: list[tuple[_Argument, int]] = []
        self.bindings: list[native.Binding] = []
        self.textures = (ctypes.POINTER(native.TextureBinding) * native.TEXTURES)()
        hosted = [self._texture(index, value) for index, value in textures.items() if value is not None]
        for index, value in arguments.items():
            if value is None:
                continue
            argument = _argument(kernel, index, value, parameters.get(index))
            if argument.tensor is not None and argument.tensor.scales is not None:
                hosted.append(self._scales(argument))
            if argument.buffer is not None:
                self._bind(argument, argument.buffer._native, argument.offset)
                self._keep.append(argument.buffer)
            else:
                hosted.append(argument)
        for group in _overlapping(hosted):
            self._bind_group(group)

    def _texture(self, index: int, value) -> _Argument:
        name = f"texture({index})"
        argument = _Argument(_ELSEWHERE, name, readonly=False, space=TEXTURE, order=index)
        if isinstance(value, Output):
            argument.output, value = True, value.array
        texture = value if isinstance(value, Texture) else Texture(value)
        argument.span = texture.span(f"textures[{index}]")
        argument.readonly = not argument.span.writable
        binding = texture.binding(argument.span)
        argument.placed = lambda address: setattr(binding, "data", address)
        self.textures[index] = ctypes.pointer(binding)
        return argument

    def _scales(self, owner: _Argument) -> _Argument:
        span = owner.tensor.scales_span(f"the scales of buffers[{owner.index}]")
        argument = _Argument(_ELSEWHERE, f"{owner.name}.scales", readonly=True, order=owner.order, span=span)
        argument.placed = lambda address: setattr(owner.tensor_binding, "scales", address)
        owner.tensor_binding = owner.tensor.binding()
        return argument

    def _bind_group(self, group: list[_Argument]) -> None:
        first = min(group, key=lambda a: a.span.low)
        low, high = first.span.low, max(a.span.high for a in group)
        readonly = all(a.readonly for a in group)
        outputs = [a for a in group if a.output]
        buffer = self._native.msl_buffer_new(high - low, first.span.phase, readonly, first.name.encode())
        address = self._native.msl_buffer_address(buffer)
        self._copies.append(_Copy(buffer, address, low, high - low, readonly, outputs))
        if len(group) == 1 and outputs and first.span.dense:
            self._native.msl_buffer_undefine(buffer, None)
        else:
            ctypes.memmove(address, low, high - low)
            if outputs:
                self._native.msl_buffer_undefine(buffer, _defined_bytes(group, low, high).ctypes.data)
        for argument in group:
            self._bind(argument, buffer, argument.offset + argument.span.first - low)
            self._keep.append(argument.span.keep)

    def _bind(self, argument: _Argument, buffer: int, offset: int) -> None:
        self._bound.append((argument, buffer))
        address = self._native.msl_buffer_address(buffer) + offset
        tensor = None
        if argument.placed is not None:
            argument.placed(address)
        elif argument.tensor is not None:
            tensor = argument.tensor_binding or argument.tensor.binding()
        elif argument.span is not None and 1 <= len(argument.span.shape) <= 8:
            span = argument.span
            tensor = Tensor(None, span.shape[::-1], span.strides[::-1]).binding()
        if tensor is not None:
            tensor.data = address
        self._keep.append(tensor)
        pointer = ctypes.pointer(tensor) if tensor is not None else None
        self.bindings.append(native.Binding(argument.index, buffer, offset, pointer))

    def counted(self) -> list[tuple[str, str, int]]:
        """(names of the arguments, their address space, the memory that they share), in the order of the arguments."""
        sharing: dict[int, list[_Argument]] = {}
        for argument, buffer in sorted(self._bound, key=lambda b: (b[0].space == TEXTURE, b[0].order, b[0].name)):
            sharing.setdefault(buffer, []).append(argument)
        return [
            (", ".join(a.name for a in arguments), arguments[0].space, buffer) for buffer, arguments in sharing.items()
        ]

    def unwritten(self) -> list[str]:
        """A sentence for each output that the kernel left incomplete; known after a checked dispatch."""
        found = []
        for copy in self._copies:
            if not copy.outputs or not copy.nbytes:
                continue
            defined = np.empty(copy.nbytes, np.uint8)
            self._native.msl_buffer_defined(copy.buffer, defined.ctypes.data)
            for argument in copy.outputs:
                missing = ~argument.span.elements(defined, copy.low).all(-1)
                if count := int(missing.sum()):
                    where = ", ".join(map(str, np.unravel_index(int(missing.argmax()), missing.shape)))
                    elements = f"{count} of {missing.size} elements of output '{argument.name}'"
                    found.append(f"{elements} were never written, the first is [{where}]")
        return found

    def copy_back(self) -> None:
        for copy in self._copies:
            if not copy.readonly:
                ctypes.memmove(copy.low, copy.address, copy.nbytes)

    def release(self) -> None:
        for copy in self._copies:
            self._native.msl_buffer_free(copy.buffer)
        self._copies.clear()


def _argument(kernel: str, index: int, value, parameter: Parameter | None) -> _Argument:
    name = parameter.name if parameter else f"buffer({index})"
    what = f"buffers[{index}] ({name})"
    argument = _Argument(index, name, readonly=bool(parameter and parameter.constant), order=index)
    if parameter and parameter.space == CONSTANT:
        argument.space = CONSTANT
    if isinstance(value, Output):
        argument.output, value = True, value.array
    if isinstance(value, Tensor):
        argument.tensor, argument.offset, value = value, value.offset, value.value
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int):
        value, argument.offset = value
    if isinstance(value, Buffer):
        argument.buffer = value
        return argument

    element = element_type(parameter.element) if parameter and parameter.indirect else None
    if element and parameter.constant and isinstance(value, (bool, int, float)):
        try:
            value = element.pack(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{kernel}: {what}: {error}") from None
    argument.span = span = host_span(value, what)
    if expected := mismatch(span.dtype, span.itemsize, element):
        raise TypeError(f"{kernel}: expected {what} {expected}, got {span.dtype}")
    if element and parameter.indirect == "&" and span.nbytes - argument.offset < element.size:
        raise ValueError(f"{kernel}: expected {what} to have {element.size} bytes, got {span.nbytes - argument.offset}")
    place = span.phase + span.first - span.low + argument.offset
    if element and span.nbytes and place % element.alignment:
        raise ValueError(
            f"{kernel}: expected {what} at a multiple of {element.alignment} bytes, as {parameter.element} needs, "
            f"got one at {place % ALIGNMENT} bytes from the alignment of its memory"
        )
    if argument.output and not span.writable:
        raise ValueError(f"{kernel}: expected {what} to be writable, since it is an Output")
    argument.readonly |= not span.writable
    return argument


def _defined_bytes(group: list[_Argument], low: int, high: int) -> np.ndarray:
    """1 for each byte whose contents the host gives, 0 for those of outputs; an array that is both gives them."""
    defined = np.ones(high - low, np.uint8)
    for argument in sorted(group, key=lambda a: not a.output):
        if math.prod(argument.span.shape):
            argument.span.elements(defined, low)[...] = not argument.output
    return defined


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
