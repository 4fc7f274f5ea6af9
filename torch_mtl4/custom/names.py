"""Which names a kernel and its parameters may have: identifiers of C that mean nothing in MSL."""

import re
from collections.abc import Iterable

from torch_mtl4.ops._errors import expected

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = "mtl4_"


def _words(text: str) -> set[str]:
    return set(text.split())


_SCALARS = _words("bool char uchar short ushort int uint long ulong half bfloat float double size_t ptrdiff_t")
_VECTORS = {f"{scalar}{n}" for scalar in _SCALARS for n in (2, 3, 4)} | {
    f"{scalar}{columns}x{rows}" for scalar in ("half", "float") for columns in (2, 3, 4) for rows in (2, 3, 4)
}
_FIXED = {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
# Of C++17, and the words that MSL adds.
_KEYWORDS = _words("""
    alignas alignof and and_eq asm auto bitand bitor break case catch class compl const constexpr const_cast continue
    decltype default delete do dynamic_cast else enum explicit export extern false final for friend goto if inline
    mutable namespace new noexcept not not_eq nullptr operator or or_eq override private protected public register
    reinterpret_cast return signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    kernel vertex fragment visible stitchable mesh object device constant thread threadgroup threadgroup_imageblock
    ray_data object_data coherent
""")
# Names of metal's that the text around a body uses.
_USED = _words("metal mpp tensor tensor_handle tensor_inline dextents extents array simd main")
_MACROS = _words("NULL INFINITY NAN MAXFLOAT MAXHALF MAXBFLOAT HUGE_VALF HUGE_VALH TRUE FALSE")
_MACRO_FAMILIES = re.compile(
    r"M_\w+_[FH]|(FLT|HALF|BFLT)_\w+|U?(CHAR|SHRT|INT|LONG)_(MIN|MAX|BIT)|SCHAR_(MIN|MAX)|U?INT\d+_(MIN|MAX)|FP_\w+"
    r"|__(METAL|HAVE|TENSOR|ENVIRONMENT|APPLE|clang)\w*"
)
_TAKEN = {*_SCALARS, *_VECTORS, *_FIXED, *_KEYWORDS, *_USED}


def check_name(op: str, what: str, name: object) -> str:
    """The name, if a parameter of a Metal kernel may have it."""
    if not isinstance(name, str):
        expected(TypeError, op, f"{what} a string", type(name).__name__)
    if not _IDENTIFIER.fullmatch(name):
        expected(ValueError, op, f"{what} an identifier of C (letters, digits, underscores)", repr(name))
    if name in _TAKEN:
        expected(ValueError, op, f"{what} a name that is free in MSL", f"{name!r}, a word of the language")
    if name in _MACROS or _MACRO_FAMILIES.fullmatch(name):
        expected(ValueError, op, f"{what} a name that is free in MSL", f"{name!r}, a macro of Metal's headers")
    if name.startswith(_OURS):
        expected(ValueError, op, f"{what} a name that does not begin with '{_OURS}'", repr(name))
    return name


def check_names(op: str, what: str, names: Iterable[str], taken: dict[str, str]) -> tuple[str, ...]:
    """The names, if they are free; `taken` (name -> what has it) takes them up."""
    if isinstance(names, str):
        expected(TypeError, op, f"{what} a sequence of names", f"the string {names!r}")
    names = tuple(check_name(op, f"each of {what}", name) for name in names)
    for name in names:
        if name in taken:
            expected(ValueError, op, f"{what} with names of their own", f"{name!r}, which is among {taken[name]}")
        taken[name] = what
    return names
