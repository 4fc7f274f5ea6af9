"""Rules of a kernel's body and helpers, each a function of the parts and their texts."""

import re
from collections.abc import Iterator

from torch_mtl4.custom.lint.findings import Finding, finding
from torch_mtl4.custom.lint.parts import KernelParts
from torch_mtl4.custom.lint.texts import Text, Token, closing, words

_PATH = re.compile(r"(?<![\w./])/(?:Users|home|private|root|tmp|var|opt|Volumes|work)/[\w.-]+|\b[A-Za-z]:\\\w+")
_INCLUDED = ("<metal_stdlib>", "<MetalPerformancePrimitives/MetalPerformancePrimitives.h>")
_TYPES = ("struct", "class", "enum", "union")


def text_findings(parts: KernelParts) -> Iterator[Finding]:
    for part, raw in (("body", parts.body), ("helpers", parts.helpers)):
        text = Text(raw)
        for rule in (_open, _edges, _directives, _brackets, _ascii, _includes, _macros, _constants, _paths):
            for name, line, message in rule(parts, part, text):
                yield finding(name, parts.name, message, part, line)
    for name, line, message in _guards(parts, Text(parts.helpers)):
        yield finding(name, parts.name, message, "helpers", line)


def _open(parts: KernelParts, part: str, text: Text):
    last = text.raw.count("\n") + 1
    if text.ends_open == "/*":
        yield "open-comment", text.line(text.raw.rindex("/*")), "`/*` is not closed: close it with `*/`"
    elif text.ends_open == "\\":
        yield "open-comment", last, "the text ends in a backslash, which joins it with the generated text: remove it"
    elif text.ends_open == "//" and part == "body" and not parts.own_lines:
        yield "open-comment", last, "the last line is a comment, and `}` is pasted behind it: end the body in a newline"


def _edges(parts: KernelParts, part: str, text: Text):
    if part == "helpers" or parts.own_lines or not text.directives:
        return
    first, last = text.directives[0], text.directives[-1]
    if "\n" not in text.raw[: first.begin] and not text.code[: first.begin].strip():
        yield "directive-at-edge", first.line, f"`#{first.word}` is pasted behind `{{`: begin the body with a newline"
    if "\n" not in text.raw[last.end :]:
        yield "directive-at-edge", last.line, f"`}}` is pasted behind `#{last.word}`: end the body with a newline"


def _directives(parts: KernelParts, part: str, text: Text):
    open_ = []
    for d in text.directives:
        if d.word in ("if", "ifdef", "ifndef"):
            open_.append(d)
        elif d.word == "endif" or d.word.startswith("el"):
            if not open_:
                yield "unbalanced-directives", d.line, f"`#{d.word}` without `#if`: remove it"
            elif d.word == "endif":
                open_.pop()
    for d in open_:
        yield "unbalanced-directives", d.line, f"`#{d.word}` without `#endif`: add it"


def _brackets(parts: KernelParts, part: str, text: Text):
    if error := text.bracket_error():
        line, bracket = error
        yield "unbalanced-brackets", line, f"`{bracket}` has no counterpart: balance the brackets of the {part}"


def _ascii(parts: KernelParts, part: str, text: Text):
    for number, line in enumerate(text.raw.split("\n"), 1):
        if char := next((c for c in line if ord(c) > 127), None):
            yield "non-ascii", number, f"the character {char!r}: write ASCII, in comments too"


def _includes(parts: KernelParts, part: str, text: Text):
    for d in text.directives:
        if d.word == "pragma" and d.rest.split()[:1] == ["once"]:
            yield "pragma-once", d.line, "`#pragma once` does nothing here: guard the helpers with `#ifndef`"
        if d.word != "include" or d.rest in _INCLUDED:
            continue
        if d.rest.startswith('"'):
            yield "include-in-helpers", d.line, f"there is no file {d.rest} where the text is compiled: paste its text"
        elif part == "body" or parts.own_namespace:
            where = "a function" if part == "body" else "a namespace"
            yield "include-in-helpers", d.line, f"{d.rest} is included in {where}: <metal_stdlib> is there already"


def _macros(parts: KernelParts, part: str, text: Text):
    undefined = {d.rest.split()[0] for d in text.directives if d.word == "undef" and d.rest}
    guards = {d.rest.split()[0] for d in text.directives if d.word == "ifndef" and d.rest}
    for d in text.directives:
        name = re.match(r"\w+", d.rest)
        if d.word == "define" and name and name[0] not in undefined | guards:
            yield "leaking-macro", d.line, f"`{name[0]}` stays defined for the kernels behind: add `#undef {name[0]}`"


def _constants(parts: KernelParts, part: str, text: Text):
    for token in text.tokens():
        if token.text == "function_constant":
            message = "function constants get no value: use a scalar input, or `constants`"
            yield "no-function-constants", token.line, message


def _paths(parts: KernelParts, part: str, text: Text):
    for number, line in enumerate(text.raw.split("\n"), 1):
        if path := _PATH.search(line):
            yield "absolute-path", number, f"{path[0]} is stored in the asset: leave paths out, of comments too"


def _guards(parts: KernelParts, helpers: Text):
    if parts.own_namespace or guarded(helpers):
        return
    names = definitions(helpers.tokens())
    if names:
        line, listed = names[0].line, ", ".join(dict.fromkeys(words(names)))
        message = f"{listed}: another kernel with these helpers in the same library would define them again: "
        yield "unguarded-helpers", line, message + "put them between `#ifndef NAME`, `#define NAME` and `#endif`"


def guarded(text: Text) -> bool:
    """Whether all of a text is between `#ifndef NAME`, `#define NAME` and `#endif`."""
    if len(text.directives) < 3:
        return not text.plain.strip()
    first, second, last = *text.directives[:2], text.directives[-1]
    outside = text.code[: first.begin] + text.code[last.end :]
    return (
        (first.word, second.word, last.word) == ("ifndef", "define", "endif")
        and first.rest.split()[:1] == second.rest.split()[:1]
        and not outside.strip()
    )


def definitions(tokens: list[Token]) -> list[Token]:
    """The names that helpers define: functions, types, and variables, also in namespaces."""
    found, i, head = [], 0, 0
    while i < len(tokens):
        text = tokens[i].text
        if text == "namespace":
            while i < len(tokens) and tokens[i].text != "{":
                i += 1
            head = i + 1
        elif text == "{":
            found += _defined(tokens[head:i])
            i = closing(tokens, i)
            head = i + 1
        elif text == ";":
            if "=" in words(tokens[head:i]):
                found += _defined(tokens[head:i])
            head = i + 1
        elif text == "}":
            head = i + 1
        i += 1
    return found


def _defined(head: list[Token]) -> list[Token]:
    """The name that is declared by what stands before a brace, or by a statement with `=`."""
    texts = words(head)
    if "using" in texts:
        return []
    for at, text in enumerate(texts[:-1]):
        if text in _TYPES and head[at + 1].kind == "word":
            return [head[at + 1]]
    stop = next(
        (at for at, text in enumerate(texts) if text in ("(", "=", "[") and at and head[at - 1].kind == "word"), 0
    )
    return [head[stop - 1]] if stop else []
