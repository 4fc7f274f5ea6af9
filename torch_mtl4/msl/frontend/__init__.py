"""The front end: preprocessed MSL in, C++ and a description of its kernels out."""

import itertools
import re

from .casts import rewrite_casts
from .lexer import lex
from .parameters import BUFFER, SAMPLER, TEXTURE, THREADGROUP, Parameter
from .rewriter import FunctionConstant, KernelDeclaration, Rewriter
from .scopes import SPACES, classify, end_of_statement
from .stream import MslSyntaxError, TokenStream

__all__ = [
    "BUFFER",
    "SAMPLER",
    "SPACES",
    "TEXTURE",
    "THREADGROUP",
    "FunctionConstant",
    "KernelDeclaration",
    "MslSyntaxError",
    "Parameter",
    "Rewriter",
    "TokenStream",
    "classify",
    "count_barriers",
    "end_of_statement",
    "lex",
    "translate",
]

_PROLOGUE = """#include "msl/msl.h"
#define device
#define threadgroup
#define thread
#define constant const
#define coherent(x)
#define METAL_INTERNAL
"""


def translate(
    preprocessed: str, constants: dict, only: str | None = None, without_barrier: int | None = None
) -> tuple[str, Rewriter]:
    """C++ of a preprocessed .metal file, and the rewriter with its kernels and function constants.

    `without_barrier` removes that barrier of the text, so that a test can ask whether a checked run notices.
    """
    tokens = lex(preprocessed)
    if without_barrier is not None:
        _remove_barrier(tokens, without_barrier)
    stream = TokenStream(tokens)
    rewrite_casts(stream)
    rewriter = Rewriter(stream, constants, re.compile(only) if only else None)
    body = rewriter.run()
    return f"{_PROLOGUE}{body}\n", rewriter


def count_barriers(preprocessed: str) -> int:
    return len(_barriers(lex(preprocessed)))


def _barriers(tokens: list) -> list[list]:
    """The tokens of each barrier's name, which may be qualified."""
    names = ("threadgroup_barrier", "simdgroup_barrier")
    dense = [t for t in tokens if not t.blank]
    barriers = []
    for i, (token, following) in enumerate(itertools.pairwise(dense)):
        if token.text in names and following.text == "(":
            first = i - 2 if i >= 2 and [t.text for t in dense[i - 2 : i]] == ["metal", "::"] else i
            barriers.append(dense[first : i + 1])
    return barriers


def _remove_barrier(tokens: list, n: int) -> None:
    barriers = _barriers(tokens)
    if not 0 <= n < len(barriers):
        raise ValueError(f"compile: expected without_barrier from 0 to {len(barriers) - 1}, got {n}")
    for token in barriers[n]:
        token.text = ""
    barriers[n][-1].text = "((void)0); (void)"
