"""What clang accepts and Apple's compiler does not, found in the tokens of a source.

Source of the rules: Apple, Metal Shading Language Specification 4: sections 1.5 (restrictions), 4.1 to 4.2 (every
pointer and reference names its address space; program-scope variables are constant); `torch.mps.compile_shader`
(ASCII sources).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .frontend import SPACES, TokenStream, classify, end_of_statement

_MARKER = re.compile(r'#\s*(?:line\s+)?(\d+)\s+"((?:\\.|[^"\\])*)"')
_FORBIDDEN = {
    "double": "MSL has no double",
    "goto": "MSL has no goto",
    "new": "MSL has no operator new",
    "delete": "MSL has no operator delete",
    "virtual": "MSL has no virtual functions",
    "dynamic_cast": "MSL has no run-time type information",
    "typeid": "MSL has no run-time type information",
    "throw": "MSL has no exceptions",
    "try": "MSL has no exceptions",
    "catch": "MSL has no exceptions",
    "thread_local": "MSL has no thread_local storage",
}
_NOT_FUNCTIONS = ("if", "for", "while", "switch", "catch", "return", "sizeof", "alignof", "decltype", "__attribute__")
_NOT_CALLED = (":", ",", "=", "else", "do", "return")  # before a name with ( ... ) {, if it is no function's
_TYPES = ("using", "typedef", "struct", "class", "union", "enum")
_NOT_VARIABLES = (*_TYPES, "namespace", "extern", "static_assert", "friend", "template")
_WORD = re.compile(r"[A-Za-z_]\w*")
_IN_TYPES = ("::", "<", ">", "*", "&", ",")
_DELETED = ("=", "operator")  # `= delete`, `operator new`


@dataclass(frozen=True)
class Lint:
    """A rule that a line breaks."""

    kind: str
    path: str
    line: int
    message: str


def lint(stream: TokenStream, name: str) -> list[Lint]:
    """The broken rules of a preprocessed source, in the order of its lines."""
    lines = _lines(stream, name)
    found = [
        Lint(kind, *lines[i], message)
        for scan in (_forbidden_words, _function_parameters, _recursion, _statements)
        for kind, i, message in scan(stream)
    ]
    return sorted(dict.fromkeys(found), key=lambda x: (x.path, x.line))


def lint_text(path: str, text: str) -> list[Lint]:
    """The broken rules of a source before it is preprocessed."""
    return [
        Lint("non-ascii", path, n, f"character {char!r}: sources are to be ASCII, in comments too")
        for n, line in enumerate(text.splitlines(), 1)
        if (char := next((c for c in line if ord(c) > 127), None))
    ]


def _lines(stream: TokenStream, name: str) -> list[tuple[str, int]]:
    """(path, line) of every token."""
    positions, path, line = [], name, 1
    for token in stream.tokens:
        positions.append((path, line))
        marker = _MARKER.match(token.text) if token.kind == "marker" else None
        if marker:
            line, path = int(marker.group(1)), marker.group(2)
        else:
            line += token.text.count("\n")
    return positions


def _forbidden_words(s: TokenStream) -> Iterator[tuple[str, int, str]]:
    for i, token in enumerate(s.tokens):
        if token.kind == "word" and token.text in _FORBIDDEN and s.at(s.prev(i)) not in _DELETED:
            yield "not-in-msl", i, _FORBIDDEN[token.text]


def _functions(s: TokenStream) -> Iterator[tuple[int, int, int, int]]:
    """(name, parenthesis, its end, brace) of every function that is defined here."""
    for i, token in enumerate(s.tokens):
        if token.text != "(" or token.kind != "punct":
            continue
        name, close = s.prev(i), s.close(i)
        brace = s.next(close)
        while s.at(brace) in (*SPACES, "const", "noexcept"):
            brace = s.next(brace)
        named = s.kind(name) == "word" and s.at(name) not in _NOT_FUNCTIONS and s.at(s.prev(name)) not in _NOT_CALLED
        if named and s.at(brace) == "{":
            yield name, i, close, brace


def _function_parameters(s: TokenStream) -> Iterator[tuple[str, int, str]]:
    """Pointers and references among the parameters."""
    for _, parenthesis, close, _ in _functions(s):
        for first, last in s.parameters(parenthesis + 1, close):
            mark = _unqualified(s, first, last)
            if mark is not None:
                text = f"parameter `{s.text(first, last).strip()}` names no address space: write device, ... or thread"
                yield "missing-address-space", mark, text


def _recursion(s: TokenStream) -> Iterator[tuple[str, int, str]]:
    """Functions that reach themselves; overloaded names are left out, since a call may mean any of them."""
    bodies: dict[str, list[tuple[int, int, int]]] = {}
    for name, _, _, brace in _functions(s):
        bodies.setdefault(s.at(name), []).append((name, brace, s.close(brace)))
    single = {name: body[0] for name, body in bodies.items() if len(body) == 1}
    calls = {
        name: {
            s.at(i)
            for i in range(brace, end)
            if s.at(i) in single and s.at(s.next(i)) == "(" and s.at(s.prev(i)) not in (".", "->")
        }
        for name, (_, brace, end) in single.items()
    }
    for name, (position, _, _) in single.items():
        reached, waiting = set(), list(calls[name])
        while waiting:
            called = waiting.pop()
            if called not in reached:
                reached.add(called)
                waiting += calls[called]
        if name in reached:
            yield "recursion", position, f"`{name}` calls itself: a pipeline has a call stack of limited depth"


def _unqualified(s: TokenStream, first: int, last: int) -> int | None:
    """Position of the * or & of a declaration that names no address space, if it has one."""
    angle = 0
    for i in range(first, last):
        if s.is_attribute(i) or s.at(i) in ("=", "auto", *SPACES):
            return None
        angle += (s.at(i) == "<") - (s.at(i) == ">")
        if angle == 0 and s.kind(i) == "punct" and s.at(i) in ("*", "&"):
            return i
    return None


def _statements(s: TokenStream) -> Iterator[tuple[str, int, str]]:
    """Declarations of variables: static ones in functions, ones at program scope, pointers without an address space."""
    scopes: list[tuple[str, int]] = []  # kind of scope, and how many parentheses stood open around it
    i, begin, at_start, open_ = 0, 0, True, 0
    while i < len(s):
        if s.tokens[i].blank:
            i += 1
            continue
        if at_start:
            begin = i
            kinds = [kind for kind, _ in scopes]
            if "function" in kinds:
                yield from _local(s, i)
            elif all(kind == "namespace" for kind in kinds):
                yield from _global(s, i)
        piece = s.at(i) if s.kind(i) == "punct" else ""
        open_ += (piece == "(") - (piece == ")")
        if piece == "{":
            in_function = any(kind == "function" for kind, _ in scopes)
            scopes.append(("function" if in_function else classify(s, begin, i), open_))
            open_ = 0
        elif piece == "}" and scopes:
            open_ = scopes.pop()[1]
        at_start = piece in ("{", "}", ";") and open_ == 0  # not in the head of a for
        i += 1


def _local(s: TokenStream, i: int) -> Iterator[tuple[str, int, str]]:
    words = []
    k = i
    while k < len(s) and s.at(k) not in (";", "{", "(", "=", ")"):
        words.append(s.at(k))
        k = s.next(k)
    if words[:1] == ["static"] and s.at(k) in (";", "=", "{") and not {"constexpr", "constant", "const"} & set(words):
        yield "static-local", i, "a static variable of a function: MSL has program-scope constants only"
    if s.at(k) in ("=", ";") and _declares_pointer(words) and not {*SPACES, "auto", "return"} & set(words):
        yield "missing-address-space", i, f"`{' '.join(words)}` names no address space: write device, ... or thread"


def _declares_pointer(words: list[str]) -> bool:
    if len(words) < 3 or words[-2] not in ("*", "&") or words.count("<") != words.count(">"):
        return False
    return all(_WORD.fullmatch(w) or w in _IN_TYPES for w in words)


def _global(s: TokenStream, i: int) -> Iterator[tuple[str, int, str]]:
    k = i
    if s.at(k) == "template" and s.at(s.next(k)) == "<":
        k = s.next(s.close_angle(s.next(k)))
    end, stop = end_of_statement(s, k, False)
    words = s.words(k, end)
    if not words or words[0] in _NOT_VARIABLES or "constant" in words:
        return
    head = words[: words.index("=")] if "=" in words else words
    is_variable = len(head) >= 2 and "(" not in head and "operator" not in head
    if is_variable and (stop == ";" or "=" in words):
        yield "program-scope-variable", k, f"`{' '.join(head)}` is not in the constant address space"
