"""Rules of a kernel's signature: its names, and how the body uses them."""

from collections.abc import Iterator, Mapping

from torch_mtl4.custom import names
from torch_mtl4.custom.lint.findings import Finding, finding
from torch_mtl4.custom.lint.parts import KernelParts
from torch_mtl4.custom.lint.texts import Text, Token, closing, words
from torch_mtl4.custom.signature import MAX_PARAMETERS, THREAD_ATTRIBUTES, UINTS

_NO_TYPES = ("return", "else", "case", "do", "goto", "using", "namespace")
_COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")


def signature_findings(parts: KernelParts) -> Iterator[Finding]:
    body = Text(parts.body).tokens()
    for rule in (_names, _count, _threads, _templates):
        for name, message in rule(parts):
            yield finding(name, parts.name, message)
    for rule in (_called, _declared, _extents):
        for name, line, message in rule(parts, body):
            yield finding(name, parts.name, message, "body", line)


def _names(parts: KernelParts):
    try:
        names.check_name("lint", "name", parts.name)
    except (TypeError, ValueError) as error:
        yield "kernel-name", f"{_said(error)}: choose another"
    taken: dict[str, str] = {}
    threads = [name for name, *_ in parts.thread_parameters]
    for what, given in (
        ("inputs", parts.inputs), ("outputs", parts.outputs), ("thread parameters", threads),
        ("constants", parts.constants),
    ):  # fmt: skip
        for name in given:
            try:
                names.check_names("lint", what, [name], taken)
            except (TypeError, ValueError) as error:
                yield "parameter-name", f"{_said(error)}: choose another"


def _said(error: Exception) -> str:
    return str(error).removeprefix("lint: ")


def _count(parts: KernelParts):
    # Apple's class has a parameter for a scalar, too, though the body does not see it.
    operands = parts.inputs + parts.outputs if parts.replaced else parts.tensors
    if (count := len(operands) + len(parts.thread_parameters)) > MAX_PARAMETERS:
        yield (
            "parameter-limit",
            f"{count} inputs, results and thread parameters, of {MAX_PARAMETERS}: pack some into one",
        )


def _threads(parts: KernelParts):
    for name, type_, attribute in parts.thread_parameters:
        if attribute.startswith("threadgroup("):
            yield "no-threadgroup-arguments", f"{name}: declare the array in the body, `threadgroup float {name}[n];`"
        elif attribute not in THREAD_ATTRIBUTES:
            yield "thread-parameter", f"{name}: Metal has no [[{attribute}]]; it has {', '.join(THREAD_ATTRIBUTES)}"
        elif type_ not in UINTS or (type_[-1].isdigit() and THREAD_ATTRIBUTES[attribute] == 1):
            known = "uint, ushort" if THREAD_ATTRIBUTES[attribute] == 1 else ", ".join(UINTS)
            yield "thread-parameter", f"{name}: [[{attribute}]] has no type {type_}: take one of {known}"


def _templates(parts: KernelParts):
    tokens = [t for raw in (parts.body, parts.helpers) for t in Text(raw).tokens()]
    found = {t.text for t in tokens if t.kind == "word"}
    given = [*parts.inputs, *parts.outputs, *(name for name, *_ in parts.thread_parameters)]
    for operand, placeholder in parts.templates.items():
        code = Text(parts.body).code + Text(parts.helpers).code
        if placeholder not in (code if parts.replaced else found):
            yield "unused-template", f"{placeholder!r}, of {operand}, is not in the text: remove it, or use it"
        if not parts.replaced:
            continue
        for other in [*parts.templates.values(), *given]:
            if placeholder in other and placeholder != other:
                message = f"{placeholder!r}, of {operand}, is part of {other!r}, and is replaced there: rename it"
                yield "template-overlap", message
        if longer := sorted(w for w in found if placeholder in w and w != placeholder and w not in given):
            message = f"{placeholder!r}, of {operand}, is replaced within {', '.join(longer)}, too: "
            yield "template-in-name", message + f"take a placeholder that nothing contains, such as {placeholder}_OF_IT"


def _called(parts: KernelParts, body: list[Token]):
    given = {*parts.inputs, *parts.outputs, *(name for name, *_ in parts.thread_parameters)}
    for at, token in enumerate(body[:-1]):
        before = body[at - 1].text if at else ""
        if token.text in given and body[at + 1].text == "(" and before not in (".", "->", "::"):
            message = f"`{token.text}(...)` calls the parameter {token.text}: rename it, or write `metal::{token.text}`"
            yield "shadowed-function", token.line, message


def _declared(parts: KernelParts, body: list[Token]):
    if parts.replaced and parts.scalars:
        return  # the body is a block of its own there
    given = {*parts.inputs, *parts.outputs, *(name for name, *_ in parts.thread_parameters)}
    depth = 0
    for at, token in enumerate(body[:-1]):
        if token.kind == "punct":
            depth += (token.text in "([{") - (token.text in ")]}")
        before = body[at - 1] if at else body[-1]
        declares = before.kind == "word" and before.text not in _NO_TYPES
        if depth == 0 and token.text in given and declares and body[at + 1].text in ("=", ";", "[", "{", ","):
            message = f"`{before.text} {token.text}` declares a parameter again: give the variable another name"
            yield "redeclared-parameter", token.line, message


def extents_of(tensors: tuple[str, ...], body: list[Token]) -> Iterator[tuple[str, int, int]]:
    """(tensor, dimension, position of its first token) of every `x.get_extent(n)` with a number."""
    for at in range(len(body) - 5):
        name, dot, call, _, number, close = words(body[at : at + 6])
        if name in tensors and (dot, call, close) == (".", "get_extent", ")") and number.isdigit():
            yield name, int(number), at


def indices_of(tensors: tuple[str, ...], body: list[Token]) -> Iterator[tuple[str, list[str], int]]:
    """(tensor, its indices as text, line) of every `x[i, j]`."""
    for at in range(len(body) - 1):
        if body[at].text in tensors and body[at + 1].text == "[":
            indices, depth = [""], 0
            for token in body[at + 2 : closing(body, at + 1)]:
                depth += (token.text in "([{") - (token.text in ")]}") if token.kind == "punct" else 0
                if token.text == "," and depth == 0:
                    indices.append("")
                else:
                    indices[-1] += token.text
            yield body[at].text, indices, body[at].line


def _extents(parts: KernelParts, body: list[Token]):
    """`i < x.get_extent(0)` beside `x[j, i]`: the guard is of another dimension than the index."""
    extents = {at: (tensor, n) for tensor, n, at in extents_of(parts.tensors, body)}
    named = {
        body[at - 2].text: where for at, where in extents.items()
        if at >= 2 and body[at - 1].text == "=" and body[at - 2].kind == "word" and body[at + 6 : at + 7]
        and body[at + 6].text in (";", ",")
    }  # fmt: skip
    places: dict[tuple[str, str], set[int]] = {}
    for tensor, indices, _ in indices_of(parts.tensors, body):
        for position, index in enumerate(indices):
            places.setdefault((tensor, index), set()).add(position)
    for index, (tensor, dimension), line in _compared(body, extents, named):
        used = places.get((tensor, index), set())
        if used and dimension not in used:
            message = (
                f"{index} is compared with extent {dimension} of {tensor}, but indexes dimension {min(used)}: "
                "dimensions are counted from the innermost, torch's last"
            )
            yield "extent-order", line, message


def _compared(
    body: list[Token], extents: Mapping[int, tuple[str, int]], named: Mapping[str, tuple[str, int]]
) -> Iterator[tuple[str, tuple[str, int], int]]:
    for at, token in enumerate(body):
        if token.text in _COMPARISONS and at:
            where = extents.get(at + 1) or named.get(body[at + 1].text if at + 1 < len(body) else "")
            if where:
                yield _before(body, at), where, token.line


def _before(body: list[Token], at: int) -> str:
    """The name that ends before a position, with the member that is asked of it: `i`, `position.y`."""
    if at >= 3 and body[at - 2].text == ".":
        return "".join(words(body[at - 3 : at]))
    return body[at - 1].text
