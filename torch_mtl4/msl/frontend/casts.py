"""Explicit conversions between half and bfloat: MSL has them, clang refuses them.

`static_cast<T>(x)`, `T(x)` and `(T)x` become calls of `msl_cast`, where T is half, bfloat or a template parameter,
which may stand for one of them.
"""

from .stream import MslSyntaxError, TokenStream

_HALVES = ("half", "bfloat")
_BEFORE_AN_OPERAND = ("return", "case", "else", "do")
_PREFIXES = ("+", "-", "!", "~", "*", "&", "++", "--")


def rewrite_casts(stream: TokenStream, every_static_cast: bool = True) -> None:
    """Rewrites the casts of a translation unit whose types may be half or bfloat.

    A static_cast to a type of several words may still be one of them; only the address-space pass leaves it alone.
    """
    parameters = _type_parameters(stream)
    ends: dict[int, int] = {}  # of the operand of a C-style cast, by the position of its parenthesis

    def is_type(i: int) -> bool:
        name = stream.at(i)
        return name in _HALVES or any(begin < i <= end for begin, end in parameters.get(name, ()))

    for i in range(len(stream) - 1, -1, -1):  # backwards, so that inner casts are done before outer ones
        token = stream.tokens[i]
        if token.text == "static_cast":
            if every_static_cast or is_type(stream.next(stream.next(i))):
                token.text = "msl_cast"
        elif token.kind == "word" and is_type(i):
            _functional(stream, i)
        elif token.text == "(" and token.kind == "punct" and is_type(stream.next(i)):
            _c_style(stream, i, ends)


def _type_parameters(stream: TokenStream) -> dict[str, list[tuple[int, int]]]:
    """Where each name declared as `typename T` or `class T` of a template is known: (first, last) positions."""
    found: dict[str, list[tuple[int, int]]] = {}
    for i, token in enumerate(stream.tokens):
        head = stream.next(i)
        if token.text != "template" or token.kind != "word" or stream.at(head) != "<":
            continue
        close = stream.close_angle(head)
        for k in range(head, close):
            name = stream.next(k)
            if stream.at(k) in ("typename", "class") and stream.at(stream.next(name)) in (",", ">", "="):
                found.setdefault(stream.at(name), []).append((i, _end_of_declaration(stream, close)))
    return found


def _end_of_declaration(stream: TokenStream, i: int) -> int:
    while i < len(stream) and stream.at(i) != ";":
        if stream.kind(i) == "punct" and stream.at(i) in ("(", "["):
            i = stream.close(i)
        elif stream.at(i) == "{":
            return stream.close(i)
        i += 1
    return i


def _functional(stream: TokenStream, i: int) -> None:
    """T(x), unless it is T(), a declarator such as T(&name)[4], or part of another name."""
    parenthesis, before = stream.next(i), stream.prev(i)
    declares = stream.kind(before) == "word" and stream.at(before) not in _BEFORE_AN_OPERAND
    if stream.at(parenthesis) != "(" or declares or stream.at(before) in (".", "->", "::"):
        return
    first = stream.next(parenthesis)
    last = stream.close(parenthesis)
    if first == last or (stream.at(first) in ("&", "*") and stream.at(stream.next(last)) in ("[", "(")):
        return
    stream.tokens[i].text = f"msl_cast<{stream.at(i)}>"


def _c_style(stream: TokenStream, i: int, ends: dict[int, int]) -> None:
    """(T)x: the operand is put into parentheses."""
    name = stream.next(i)
    close = stream.next(name)
    if stream.at(close) != ")":
        return
    before = stream.prev(i)
    called = stream.kind(before) == "word" and stream.at(before) not in _BEFORE_AN_OPERAND
    if called or stream.at(before) in ("]", ">") or (stream.at(before) == ")" and not _closes_a_type(stream, before)):
        return
    end = _end_of_operand(stream, stream.next(close), ends)
    if end is None:
        return
    ends[i] = end
    stream.tokens[i].text = "msl_cast<"
    stream.tokens[close].text = ">("
    stream.tokens[end].text += ")"


def _closes_a_type(stream: TokenStream, close: int) -> bool:
    """Is this the end of another cast, (float)? A call f(x) is none."""
    name = stream.prev(close)
    opening = stream.prev(name)
    caller = stream.prev(opening)
    called = stream.kind(caller) == "word" and stream.at(caller) not in _BEFORE_AN_OPERAND
    return stream.kind(name) == "word" and stream.at(opening) == "(" and not called


def _end_of_operand(stream: TokenStream, i: int, ends: dict[int, int]) -> int | None:
    """The last token of the operand of a cast that begins at i; None if there is none."""
    while stream.at(i) in _PREFIXES and stream.kind(i) == "punct":
        i = stream.next(i)
    if i in ends:
        return ends[i]
    if stream.at(i) == "(":
        end = stream.close(i)
        following = stream.next(end)
        type_alone = stream.at(stream.next(stream.next(i))) == ")" and stream.kind(stream.next(i)) == "word"
        if type_alone and stream.kind(following) in ("word", "number"):  # a cast of a cast
            return _end_of_operand(stream, following, ends)
    elif stream.kind(i) in ("word", "number", "char"):
        end = i
    else:
        return None
    return _end_of_postfix(stream, end)


def _end_of_postfix(stream: TokenStream, end: int) -> int:
    while True:
        following = stream.next(end)
        piece = stream.at(following)
        if piece in ("(", "["):
            end = stream.close(following)
        elif piece in (".", "->", "::"):
            end = stream.next(following)
        elif piece in ("++", "--"):
            end = following
        elif piece == "<" and stream.kind(end) == "word":
            try:
                close = stream.close_angle(following)
            except MslSyntaxError:
                return end
            if stream.at(stream.next(close)) not in ("(", "{", "::"):
                return end
            end = close
        else:
            return end
