"""Element types of kernel parameters, as far as their declaration names them, and the host dtypes that fit."""

import re
from dataclasses import dataclass

import numpy as np

# Of each scalar: its size, its category, and the numpy dtype that holds it (bfloat has none).
_SCALARS = {
    "bool": (1, "integer", "bool"),
    "char": (1, "integer", "int8"),
    "uchar": (1, "integer", "uint8"),
    "short": (2, "integer", "int16"),
    "ushort": (2, "integer", "uint16"),
    "int": (4, "integer", "int32"),
    "uint": (4, "integer", "uint32"),
    "long": (8, "integer", "int64"),
    "ulong": (8, "integer", "uint64"),
    "half": (2, "half", "float16"),
    "bfloat": (2, "bfloat", None),
    "float": (4, "float", "float32"),
}
_ALIASES = {
    "int8_t": "char",
    "uint8_t": "uchar",
    "int16_t": "short",
    "uint16_t": "ushort",
    "int32_t": "int",
    "uint32_t": "uint",
    "int64_t": "long",
    "uint64_t": "ulong",
    "size_t": "ulong",
    "unsigned": "uint",
    "unsigned int": "uint",
    "unsigned char": "uchar",
    "unsigned short": "ushort",
    "unsigned long": "ulong",
}
_VECTOR = re.compile(r"(packed_)?([a-z]+)([234])")
_FLOATS = {"float16": "half", "bfloat16": "bfloat", "float32": "float"}
_ABSENT = ("float64", "float128", "longdouble", "complex128", "complex256", "clongdouble")


@dataclass(frozen=True)
class ElementType:
    """A scalar of MSL, or a vector of `lanes` of them; size and alignment of the element are in bytes."""

    scalar: str
    lanes: int
    size: int
    alignment: int

    @property
    def scalar_size(self) -> int:
        return _SCALARS[self.scalar][0]

    @property
    def numpy_dtype(self) -> np.dtype | None:
        name = _SCALARS[self.scalar][2]
        return np.dtype(name) if name else None

    def pack(self, value) -> bytes:
        """The bytes of a Python number, or of a sequence with one for each lane."""
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        if self.numpy_dtype is None or len(values) != self.lanes:
            raise TypeError(f"expected bytes or an array of {self.scalar}, got {value!r}")
        try:
            packed = np.array(values, self.numpy_dtype)
        except OverflowError:
            raise ValueError(f"expected a number that fits {self.scalar}, got {value!r}") from None
        if self.numpy_dtype.kind in "iu" and any(v != p for v, p in zip(values, packed.tolist(), strict=True)):
            raise ValueError(f"expected a whole number for {self.scalar}, got {value!r}")
        return packed.tobytes().ljust(self.size, b"\0")


def element_type(text: str) -> ElementType | None:
    """The type that a declaration spells, such as "float", "packed_half4" or "uint32_t"; None if it is another."""
    text = _ALIASES.get(text.removeprefix("metal::"), text.removeprefix("metal::"))
    if text in _SCALARS:
        return ElementType(text, 1, _SCALARS[text][0], _SCALARS[text][0])
    match = _VECTOR.fullmatch(text)
    if not match or match.group(2) not in _SCALARS:
        return None
    packed, scalar, lanes = match.group(1), match.group(2), int(match.group(3))
    scalar_size = _SCALARS[scalar][0]
    padded = scalar_size * 2 ** (lanes - 1).bit_length()
    return ElementType(scalar, lanes, *((scalar_size * lanes, scalar_size) if packed else (padded, padded)))


def mismatch(dtype_name: str, itemsize: int, element: ElementType | None) -> str | None:
    """What was expected of an array that is bound to a parameter, or None if it fits.

    Bytes, and unsigned integers of the right size, are raw bits: they fit everything. `array.view(...)` makes them.
    """
    if dtype_name in _ABSENT:
        return "of a dtype that MSL has"
    if element is None or itemsize == 1 or element.scalar_size == 1:
        return None
    category = _SCALARS[element.scalar][1]
    raw = dtype_name.startswith("uint")
    given = _FLOATS.get(dtype_name, "integer" if dtype_name.startswith(("int", "uint")) else None)
    if given is None or (itemsize == element.scalar_size and (raw or given == category)):
        return None
    return f"to hold {element.scalar}, as the parameter does"
