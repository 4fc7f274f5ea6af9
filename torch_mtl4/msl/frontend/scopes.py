"""Where a declaration ends, and what kind of scope a brace opens."""

from dataclasses import dataclass

from .stream import TokenStream

SPACES = ("device", "threadgroup", "constant", "thread")
CLASS_KEYS = ("struct", "class", "union")


@dataclass
class Scope:
    """An open brace: "namespace", "class", "function" or "other", with the name of a class or namespace."""

    kind: str
    name: str = ""
    serial: int = 0


def classify(s: TokenStream, begin: int, brace: int) -> str:
    words = s.words(begin, brace)
    if not words:
        return "other"
    if words[0] in ("namespace", "extern") or (words[0] == "inline" and "namespace" in words):
        return "namespace"
    angle, class_key, parenthesis = 0, False, False
    for word in words:
        angle += (word == "<") - (word == ">")
        if angle == 0:
            class_key |= word in (*CLASS_KEYS, "enum")
            parenthesis |= word == "("
    if class_key and (not parenthesis or words[0] in CLASS_KEYS):
        return "class"
    return "function" if parenthesis else "other"


def class_name(s: TokenStream, begin: int, brace: int) -> str:
    k = begin
    if s.at(k) == "template" and s.at(s.next(k)) == "<":
        k = s.close_angle(s.next(k)) + 1
    while k < brace and s.at(k) not in CLASS_KEYS:
        k += 1
    k = s.next(k)
    while s.is_attribute(k) or s.at(k) in ("alignas", "__attribute__"):
        k = s.next(s.close(k if s.is_attribute(k) else s.next(k)))
    return s.at(k) if s.kind(k) == "word" else "?"


def end_of_statement(s: TokenStream, i: int, in_class: bool) -> tuple[int, str]:
    """(position, one of '{' ';' '}' or '' at the end of the text) where the declaration at i stops."""
    while i < len(s):
        if s.kind(i) == "punct":
            piece = s.at(i)
            if piece == "(":
                i = s.close(i)
                k = s.next(i)
                while s.at(k) in (*SPACES, "const", "noexcept", "volatile", "override", "final"):
                    k = s.next(k)
                if s.at(k) == ":" and in_class:
                    i = _skip_initialisers(s, k)
                    continue
            elif piece in "{;}":
                return i, piece
        i += 1
    return i, ""


def _skip_initialisers(s: TokenStream, colon: int) -> int:
    """Position of the body after a constructor's member initialisers."""
    k = s.next(colon)
    while k < len(s):
        while k < len(s) and s.at(k) not in ("(", "{", "<"):
            k = s.next(k)
        if s.at(k) == "<":
            k = s.next(s.close_angle(k))
            continue
        k = s.next(s.close(k))
        if s.at(k) == "...":
            k = s.next(k)
        if s.at(k) != ",":
            return k
        k = s.next(k)
    return k
