"""Tokens of preprocessed Metal Shading Language."""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<marker>^\#[^\n]*\n)
  | (?P<space>[ \t\r\n\f\v]+)
  | (?P<string>(?:u8|L)?"(?:\\.|[^"\\])*")
  | (?P<char>'(?:\\.|[^'\\])*')
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<punct>::|->|<<=|>>=|<=|>=|==|!=|&&|\|\||\+\+|--|[+\-*/%&|^]=|.)
    """,
    re.M | re.S | re.X,
)
_OPTIMISATION_PRAGMA = re.compile(r"#\s*pragma\s+(unroll|nounroll|clang\s+loop|METAL)")
_UNSUFFIXED_FLOAT = re.compile(r"(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|\d+[eE][+-]?\d+|0[xX][0-9a-fA-F.]+[pP][+-]?\d+")
_SUFFIXED_FLOAT = re.compile(r"(?P<value>[\d.]+([eE][+-]?\d+)?|0[xX][0-9a-fA-F.]+[pP][+-]?\d+)(?P<suffix>[hH]|bf|BF)")


@dataclass(slots=True)
class Token:
    kind: str
    text: str

    @property
    def blank(self) -> bool:
        return self.kind in ("space", "marker")


def lex(text: str) -> list[Token]:
    """Splits preprocessed text; floating literals become those of C++.

    MSL has no double, so without a suffix they are float; its suffixes of half and bfloat are unknown to clang.
    """
    tokens = []
    for match in _TOKEN.finditer(text):
        kind, piece = match.lastgroup, match.group()
        if kind == "marker" and _OPTIMISATION_PRAGMA.match(piece):
            kind, piece = "space", "\n"
        elif kind == "number" and _UNSUFFIXED_FLOAT.fullmatch(piece):
            piece += "f"
        elif kind == "number" and (literal := _SUFFIXED_FLOAT.fullmatch(piece)):
            value = literal["value"] + ("" if re.search("[.eEpP]", literal["value"]) else ".0")
            piece = f"{value}f16" if literal["suffix"] in "hH" else f"((bfloat){value}f)"
        tokens.append(Token(kind, piece))
    return tokens


def join(tokens: list[Token]) -> str:
    return "".join(token.text for token in tokens)
