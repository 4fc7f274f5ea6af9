"""The strict pass: the same text type-checked with real address spaces, which the run build does not have."""

import re

from . import toolchain
from .frontend import Rewriter, TokenStream, lex
from .frontend.casts import rewrite_casts
from .tiers import find_tier

_PROLOGUE = """#include "msl/strict.h"
#define device MSL_DEVICE
#define threadgroup MSL_THREADGROUP
#define constant MSL_CONSTANT const
#define thread
"""
_SCALARS = "bool|char|uchar|short|ushort|int|uint|long|ulong|half|float|bfloat"
_VECTOR = re.compile(rf"(?:packed_)?(?:{_SCALARS})[234]")
_FLAGS = ["-std=c++2c", "-nostdinc", "-Wno-everything", f"-I{toolchain.INCLUDE}"]


def check_address_spaces(text: str, tier: str) -> tuple[bool, str]:
    """Type-checks a preprocessed source with address spaces: (accepted, diagnostics)."""
    stream = TokenStream(lex(text))
    rewrite_casts(stream, every_static_cast=False)
    _rewrite_vector_constructors(stream)
    _drop_space_of_objects(stream)
    _mark_thread_tensors(stream)
    body = Rewriter(stream, {}, strict=True).run()
    flags = [*_FLAGS, *find_tier(tier).header_flags()]
    return toolchain.check_syntax(_PROLOGUE + body, "strict.h", flags)


def _drop_space_of_objects(stream: TokenStream) -> None:
    """Objects with methods cannot lie in an address space here: `constant os_log log(...)` becomes const."""
    for i, token in enumerate(stream.tokens):
        if token.text == "constant" and stream.at(stream.next(i)) in ("os_log", "sampler"):
            token.text = "const"


def _mark_thread_tensors(stream: TokenStream) -> None:
    """`thread` is the default space and so invisible here, but a tensor must say it: tensor<thread T, ...>."""
    for i, token in enumerate(stream.tokens):
        angle = stream.prev(i)
        if token.text != "thread" or stream.at(angle) != "<" or stream.at(stream.prev(angle)) != "tensor":
            continue
        comma = stream.parameters(stream.next(i), stream.close_angle(angle))[0][1]
        token.text = "metal::in_thread_<"
        stream.tokens[comma].text = ">,"


def _rewrite_vector_constructors(stream: TokenStream) -> None:
    """Vectors are clang's built-in ones here, which have no constructors: float2(a, b) becomes a function call."""
    for i, token in enumerate(stream.tokens):
        if token.kind != "word" or not (_VECTOR.fullmatch(token.text) or token.text == "vec"):
            continue
        end = i
        if token.text == "vec":
            if stream.at(stream.next(i)) != "<":
                continue
            end = stream.close_angle(stream.next(i))
        parenthesis = stream.next(end)
        if stream.at(parenthesis) != "(" or stream.at(stream.next(parenthesis)) == ")":
            continue
        before = stream.prev(i)
        if stream.at(before) in (".", "->"):
            continue
        if stream.at(before) == "::":
            stream.tokens[before].text = stream.tokens[stream.prev(before)].text = ""
        token.text = "msl_make<" + token.text
        stream.tokens[end].text += ">"
