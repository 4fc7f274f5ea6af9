"""Reads the arguments of a kernel from the command line."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..buffers import Output
from ..element_types import element_type
from ..frontend import BUFFER, KernelDeclaration, Parameter

_FILLS = ("zeros", "ones", "arange", "normal")
_SPEC = re.compile(r"(?:(?P<dtype>[a-z]\w*):)?(?P<shape>\d+(?:x\d+)*)(?::(?P<fill>.+))?")
_SEED = 0


@dataclass
class KernelArguments:
    """The buffers of a kernel by index, and the arrays among them by the name of their parameter."""

    buffers: dict[int, object]
    arrays: dict[str, np.ndarray]

    def fresh(self) -> "KernelArguments":
        """The same arguments in memory of their own, for another run."""
        copies = {id(array): array.copy() for array in self.arrays.values()}

        def copied(value):
            if isinstance(value, Output):
                return Output(copied(value.array))
            return copies.get(id(value), value)

        buffers = {index: copied(value) for index, value in self.buffers.items()}
        return KernelArguments(buffers, {name: copies[id(array)] for name, array in self.arrays.items()})


def pairs(options: Sequence[str], option: str) -> list[tuple[str, str]]:
    """[(key, text)] of options of the form key=text."""
    split = [text.partition("=") for text in options]
    for key, equals, _ in split:
        if not equals:
            raise ValueError(f"{option}: expected KEY=..., got {key!r}")
    return [(key, text) for key, _, text in split]


def sizes(text: str, option: str) -> tuple[int, ...]:
    """(2, 3) of "2x3"."""
    if not re.fullmatch(r"\d+(x\d+){0,2}", text):
        raise ValueError(f"{option}: expected one to three numbers such as 128 or 4x8, got {text!r}")
    return tuple(map(int, text.split("x")))


def number(text: str) -> bool | int | float:
    """A literal as C writes it: true, 3, 0x10, 1e-6."""
    if text in ("true", "false"):
        return text == "true"
    try:
        value = ast.literal_eval(text.rstrip("fF") if re.fullmatch(r"[-+.\deE]+[fF]", text) else text)
    except (SyntaxError, ValueError):
        value = None
    if not isinstance(value, (int, float)):
        raise ValueError(f"expected a number, got {text!r}")
    return value


def constants(options: Sequence[str]) -> dict[int | str, object]:
    """Function constants from KEY=VALUE, by index or name; several values with commas make a vector."""
    read = {}
    for key, text in pairs(options, "--constant"):
        values = [number(part) for part in text.split(",")]
        read[int(key) if key.isdigit() else key] = values[0] if len(values) == 1 else values
    return read


def kernel_arguments(kernel: KernelDeclaration, buffers: Sequence[str], values: Sequence[str]) -> KernelArguments:
    """The buffers that --buffer and --value describe."""
    parameters = {p.index: p for p in kernel.parameters if p.kind == BUFFER}
    by_name = {p.name: p for p in parameters.values()}
    random = np.random.default_rng(_SEED)
    arguments = KernelArguments({}, {})

    def parameter(key: str) -> Parameter:
        found = by_name.get(key) or parameters.get(key)
        if found is None:
            known = ", ".join(f"{p.name} ({p.index})" for p in parameters.values())
            raise ValueError(f"{kernel.name}: expected one of {known}, got {key!r}")
        return found

    for key, text in pairs(buffers, "--buffer"):
        p = parameter(key)
        array, filled = _array(p, text, random)
        arguments.arrays[p.name] = array
        arguments.buffers[int(p.index)] = array if filled else Output(array)
    for key, text in pairs(values, "--value"):
        p = parameter(key)
        arguments.buffers[int(p.index)] = _value(p, text)
    missing = [p for p in parameters.values() if int(p.index) not in arguments.buffers and not p.condition]
    if missing:
        say = [f"--value {p.name}=..." if p.indirect == "&" else f"--buffer {p.name}=..." for p in missing]
        raise ValueError(f"{kernel.name}: expected {', '.join(say)} as well")
    return arguments


def _array(p: Parameter, text: str, random: np.random.Generator) -> tuple[np.ndarray, bool]:
    """(array, has it contents?)"""
    if text.endswith(".npy"):
        return np.load(Path(text)), True
    match = _SPEC.fullmatch(text)
    if not match:
        raise ValueError(f"--buffer {p.name}: expected [DTYPE:]SHAPE[:FILL] or a .npy file, got {text!r}")
    dtype = _dtype(p, match["dtype"])
    shape = tuple(map(int, match["shape"].split("x")))
    fill = match["fill"] or ("normal" if p.constant else None)
    if fill is None:
        return np.zeros(shape, dtype), False
    return _filled(shape, dtype, fill, random), True


def _filled(shape, dtype: np.dtype, fill: str, random: np.random.Generator) -> np.ndarray:
    if fill == "arange":
        return np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    if fill == "normal":
        if dtype.kind == "f":
            return random.standard_normal(shape).astype(dtype)
        return random.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)
    if fill in _FILLS:
        return np.full(shape, fill == "ones", dtype)
    try:
        return np.full(shape, number(fill), dtype)
    except ValueError:
        raise ValueError(f"expected a fill among {', '.join(_FILLS)} or a number, got {fill!r}") from None


def _dtype(p: Parameter, name: str | None) -> np.dtype:
    if name:
        try:
            return np.dtype(name)
        except TypeError:
            raise ValueError(f"--buffer {p.name}: expected a numpy dtype such as float16, got {name!r}") from None
    element = element_type(p.element)
    if element is None or element.numpy_dtype is None:
        raise ValueError(f"--buffer {p.name}: expected DTYPE:SHAPE, since the parameter's type {p.element} names none")
    return element.numpy_dtype


def _value(p: Parameter, text: str) -> bytes:
    if ":" not in text:
        element = element_type(p.element)
        if element is None:
            raise ValueError(f"--value {p.name}: expected DTYPE:NUMBER,... since the parameter is a {p.element}")
        return element.pack([number(part) for part in text.split(",")])
    packed = b""
    for part in text.split(","):
        dtype, _, literal = part.partition(":")
        element = element_type(dtype)
        kind = element.numpy_dtype if element else _dtype(p, dtype)
        packed += np.array(number(literal), kind).tobytes()
    return packed
