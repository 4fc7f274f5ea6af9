"""Navigation over a list of tokens: matching brackets, attributes, blanking without moving a line."""

import re

from .lexer import Token, join

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_ATTRIBUTE = re.compile(r"\s*([\w:]+)\s*(?:\((.*)\))?\s*$", re.S)


class MslSyntaxError(SyntaxError):
    """The front end met something that it does not understand."""


class TokenStream:
    """A list of tokens; positions are indices, `next` and `prev` skip white space and line markers."""

    def __init__(self, tokens: list[Token]):
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def at(self, i: int) -> str:
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def kind(self, i: int) -> str:
        return self.tokens[i].kind if 0 <= i < len(self.tokens) else ""

    def next(self, i: int) -> int:
        i += 1
        while i < len(self.tokens) and self.tokens[i].blank:
            i += 1
        return i

    def prev(self, i: int) -> int:
        i -= 1
        while i >= 0 and self.tokens[i].blank:
            i -= 1
        return i

    def text(self, begin: int, end: int) -> str:
        return join([t for t in self.tokens[begin:end] if t.kind != "marker"])

    def words(self, begin: int, end: int) -> list[str]:
        return [t.text for t in self.tokens[begin:end] if not t.blank]

    def identifiers(self, begin: int, end: int) -> list[str]:
        return [t.text for t in self.tokens[begin:end] if t.kind == "word"]

    def close(self, i: int) -> int:
        """Position of the bracket that closes the one at i."""
        opening = self.at(i)
        closing, depth = _CLOSING[opening], 0
        for k in range(i, len(self.tokens)):
            token = self.tokens[k]
            if token.kind == "punct":
                depth += (token.text == opening) - (token.text == closing)
                if depth == 0:
                    return k
        raise MslSyntaxError(f"unbalanced {opening}")

    def close_angle(self, i: int) -> int:
        """Position of the '>' that closes the template bracket at i."""
        depth = 0
        while i < len(self.tokens):
            token = self.tokens[i]
            if token.kind == "punct":
                if token.text == "<":
                    before = self.prev(i)
                    compares = before >= 0 and (self.at(before) in (")", "]") or self.kind(before) == "number")
                    depth += not compares
                elif token.text == ">":
                    depth -= 1
                    if depth == 0:
                        return i
                elif token.text in _CLOSING:
                    i = self.close(i)
                elif token.text == ";":
                    break
            i += 1
        raise MslSyntaxError("unbalanced <")

    def open_angle(self, i: int) -> int:
        """Position of the '<' that opens the template bracket closed at i."""
        depth = 0
        while i >= 0:
            depth += (self.at(i) == ">") - (self.at(i) == "<")
            if depth == 0:
                return i
            i -= 1
        raise MslSyntaxError("unbalanced >")

    def blank(self, begin: int, end: int) -> None:
        """Drops tokens, but keeps newlines and line markers so that positions stay true."""
        for token in self.tokens[begin:end]:
            if token.kind == "marker":
                continue
            newlines = "\n" * token.text.count("\n")
            token.text = newlines or (token.text if token.kind == "space" else " ")
            token.kind = "space"

    def is_attribute(self, i: int) -> bool:
        """Is there a [[ at i?"""
        return self.at(i) == "[" and self.kind(i) == "punct" and self.at(self.next(i)) == "[" and self.next(i) - i <= 2

    def has_attribute(self, begin: int, end: int) -> bool:
        return any(self.is_attribute(i) for i in range(begin, end))

    def attributes(self, begin: int, end: int) -> list[tuple[str, str]]:
        """(name, argument text) of every [[...]] in the range."""
        found, i = [], begin
        while i < end:
            if self.is_attribute(i):
                last = self.close(i)
                body = self.text(self.next(i) + 1, last).strip().removesuffix("]")
                for part in split_commas(body):
                    if match := _ATTRIBUTE.match(part):
                        found.append((match.group(1), (match.group(2) or "").strip()))
                i = last
            i += 1
        return found

    def strip_attributes(self, begin: int, end: int) -> None:
        i = begin
        while i < end:
            if self.is_attribute(i):
                last = self.close(i)
                self.blank(i, last + 1)
                i = last
            i += 1

    def parameters(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Ranges of the comma-separated parameters between begin and end."""
        ranges, depth, angle, start = [], 0, 0, begin
        for i in range(begin, end):
            if self.kind(i) != "punct":
                continue
            piece = self.at(i)
            if piece in "([{":
                depth += 1
            elif piece in ")]}":
                depth -= 1
            elif piece == "<":
                angle += 1
            elif piece == ">" and angle:
                angle -= 1
            elif piece == "," and depth == 0 and angle == 0:
                ranges.append((start, i))
                start = i + 1
        if self.text(start, end).strip() not in ("", "void"):
            ranges.append((start, end))
        return ranges

    def function_head(self, begin: int, end: int) -> tuple[int, int] | None:
        """(position of the name, position of its parameter list) of the function declared in the range."""
        k = begin
        if self.at(k) == "template" and self.at(self.next(k)) == "<":
            k = self.close_angle(self.next(k)) + 1
        while k < end:
            if self.is_attribute(k):
                k = self.close(k) + 1
                continue
            if self.kind(k) == "punct" and self.at(k) == "(":
                name = self.prev(k)
                if self.at(name) == "operator" and self.at(self.next(k)) == ")":
                    return name, self.next(self.next(k))
                if self.at(name) == ">":
                    name = self.prev(self.open_angle(name))
                if self.at(name) not in ("__attribute__", "decltype", "alignas"):
                    return name, k
                k = self.close(k)
            k += 1
        return None


def split_commas(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    return [*parts, current]
