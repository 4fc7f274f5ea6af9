"""A text without its comments: its preprocessor directives and its tokens, with the line of each."""

import re
from dataclasses import dataclass

_COMMENTS = re.compile(r"//(?:\\\n|[^\n])*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
_DIRECTIVE = re.compile(r"^[ \t]*#((?:\\\n|[^\n])*)", re.M)
_OPENS, _CLOSES = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Directive:
    """`#word rest` at a position of the text."""

    word: str
    rest: str
    line: int
    begin: int
    end: int


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


class Text:
    """The body of a kernel or its helpers.

    Attributes:
        raw: as it was given. code: without comments, of the same length. plain: without directives, too.
        ends_open: what reaches beyond the end: "//", "/*", "\\" or None.
    """

    def __init__(self, raw: str):
        self.raw = raw
        self.code = _COMMENTS.sub(lambda m: _blank(m[0]) if m[0][0] == "/" else m[0], raw)
        comments = [m for m in _COMMENTS.finditer(raw) if m[0][:2] == "//"]
        self.ends_open = None
        if "/*" in self.code:
            self.ends_open = "/*"
            at = self.code.index("/*")
            self.code = self.code[:at] + _blank(self.code[at:])
        elif comments and comments[-1].end() == len(raw):
            self.ends_open = "//"
        elif raw.endswith("\\"):
            self.ends_open = "\\"
        self.directives = [self._directive(m) for m in _DIRECTIVE.finditer(self.code)]
        self.plain = _DIRECTIVE.sub(lambda m: _blank(m[0]), self.code)

    def line(self, position: int) -> int:
        return self.raw.count("\n", 0, position) + 1

    def tokens(self, code: str | None = None) -> list[Token]:
        from torch_mtl4.msl.frontend.lexer import lex

        found, at = [], 1
        for token in lex(self.plain if code is None else code):
            if not token.blank:
                found.append(Token(token.kind, token.text, at))
            at += token.text.count("\n")
        return found

    def _directive(self, match: re.Match) -> Directive:
        word, _, rest = match[1].strip().partition(" ")
        return Directive(word, rest.strip(), self.line(match.end(0) - len(match[1])), match.start(), match.end())

    def branches(self) -> tuple[str, str]:
        """The code with the first branch of every conditional, and with the last."""
        return self._branch(first=True), self._branch(first=False)

    def _branch(self, first: bool) -> str:
        code, open_, dead = list(self.plain), [], []
        for d in self.directives:
            if d.word in ("if", "ifdef", "ifndef"):
                open_.append([d.end])
            elif d.word in ("else", "elif", "elifdef", "elifndef") and open_:
                open_[-1] += [d.begin, d.end]
            elif d.word == "endif" and open_:
                edges = [*open_.pop(), d.begin]
                regions = list(zip(edges[::2], edges[1::2], strict=True))
                # One without `else` counts as taken both ways: what it holds is balanced or not by itself.
                dead += regions[1:] if first else regions[:-1]
        for begin, end in dead:
            code[begin:end] = _blank("".join(code[begin:end]))
        return "".join(code)

    def bracket_error(self) -> tuple[int, str] | None:
        """(line, bracket) of the first that does not match in either choice of branches; None: all do in one."""
        errors = [_unbalanced(self.tokens(code)) for code in self.branches()]
        return None if None in errors else errors[0]


def _unbalanced(tokens: list[Token]) -> tuple[int, str] | None:
    open_: list[Token] = []
    for token in tokens:
        if token.kind != "punct":
            continue
        if token.text in _OPENS:
            open_.append(token)
        elif token.text in _CLOSES and (not open_ or _OPENS[open_.pop().text] != token.text):
            return token.line, token.text
    return (open_[-1].line, open_[-1].text) if open_ else None


def words(tokens: list[Token]) -> list[str]:
    return [token.text for token in tokens]


def closing(tokens: list[Token], at: int) -> int:
    """Position of the bracket that closes the one at `at`, or the end."""
    depth = 0
    for i in range(at, len(tokens)):
        if tokens[i].kind == "punct":
            depth += (tokens[i].text in _OPENS) - (tokens[i].text in _CLOSES)
            if depth == 0:
                return i
    return len(tokens)
