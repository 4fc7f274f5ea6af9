"""All that a kernel is made of, as the user gave it, and when two of them are the same."""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, eq=False)
class Definition:
    """The arguments of `torch_mtl4.metal_kernel`, which documents them."""

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    source: str
    reference: Callable
    grid: Sequence[int] | Callable
    threadgroup: Sequence[int] | Callable
    thread_parameters: Mapping[str, str]
    output_shapes: Callable | None
    output_dtypes: Sequence | None
    helpers: str
    templates: Mapping[str, str]
    constants: Mapping[str, bool | int | float]
    backward: str | Callable | None
    in_place: Sequence[str]
    cpu: str

    def __eq__(self, other: object) -> bool:
        """Whether a kernel of one does what a kernel of the other does, as when a cell of a notebook runs again."""
        return isinstance(other, Definition) and all(
            _same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)
        )

    __hash__ = None


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, types.FunctionType) and isinstance(b, types.FunctionType):
        return a is b or (
            a.__code__ == b.__code__
            and _same(a.__defaults__, b.__defaults__)
            and _same(a.__kwdefaults__, b.__kwdefaults__)
            and _same(_closure(a), _closure(b))
        )
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or (type(a) is type(b) and isinstance(a, (str, int, float)) and repr(a) == repr(b))


def _closure(function: types.FunctionType) -> tuple:
    return tuple(cell.cell_contents for cell in function.__closure__ or ())
