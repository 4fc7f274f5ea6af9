"""Threadgroup variables: each becomes a reference into the arena of its threadgroup, found by the address of a key."""

from collections.abc import Callable

from .stream import MslSyntaxError, TokenStream

_SPECIFIERS = ("alignas", "static", "const", "volatile", "threadgroup", "constexpr")


def rewrite_threadgroup_variable(stream: TokenStream, i: int, number: Callable[[], int]) -> int | None:
    """Rewrites the declaration at i if it declares threadgroup variables; returns the position after it, else None."""
    type_begin, is_threadgroup = _skip_specifiers(stream, i)
    if not is_threadgroup:
        return None
    name = _declared_name(stream, type_begin)
    if name is None:
        return None

    type_text = stream.text(type_begin, name).strip()
    declarations, k = "", name
    while True:
        variable, k = stream.at(k), stream.next(k)
        dimensions = ""
        while stream.at(k) == "[":
            last = stream.close(k)
            dimensions += stream.text(k, last + 1)
            k = stream.next(last)
        declarations += _reference(type_text, variable, dimensions, number())
        if stream.at(k) == "=":
            k = _skip_initialiser(stream, k)
        if stream.at(k) != ",":
            break
        k = stream.next(k)
    if stream.at(k) != ";":
        raise MslSyntaxError(f"threadgroup variable not understood: {stream.text(i, i + 30).strip()}")
    stream.blank(i, k)
    stream.tokens[k].text = declarations
    return k + 1


def _reference(type_text: str, variable: str, dimensions: str, serial: int) -> str:
    alias, key = f"msl_type_{serial}", f"msl_key_{serial}"
    return (
        f"static char {key}; typedef threadgroup {type_text} {alias}{dimensions}; "
        f'{alias}& {variable} = msl::threadgroup_variable<{alias}>(&{key}, "{variable}");'
    )


def _skip_specifiers(stream: TokenStream, i: int) -> tuple[int, bool]:
    is_threadgroup = False
    while stream.at(i) in _SPECIFIERS:
        is_threadgroup |= stream.at(i) == "threadgroup"
        following = stream.next(i)
        i = stream.next(stream.close(following)) if stream.at(i) == "alignas" else following
    return i, is_threadgroup


def _declared_name(stream: TokenStream, i: int) -> int | None:
    """Position of the first declared name behind the type at i; None for pointers, references and functions."""
    if stream.at(i) == "typename":
        i = stream.next(i)
    has_type = False
    while i < len(stream):
        if stream.kind(i) == "word":
            following = stream.next(i)
            if has_type and stream.at(following) in ("[", ";", ",", "=") and not stream.is_attribute(following):
                return i
            has_type = True
            i = following
        elif stream.at(i) == "::":
            i = stream.next(i)
        elif stream.at(i) == "<":
            i = stream.next(stream.close_angle(i))
        else:
            return None
    return None


def _skip_initialiser(stream: TokenStream, i: int) -> int:
    """MSL gives the initialiser of a threadgroup variable no meaning."""
    while stream.at(i) not in (";", ","):
        i = (stream.close(i) if stream.at(i) in ("{", "(") else i) + 1
    return i
