"""Explicit conversions between half and bfloat: MSL has them, clang refuses them.

`static_cast<T>(x)`, `T(x)` and `(T)x` become calls of `msl_cast`, where T is half, bfloat or a template parameter,
which may stand for one of them.
"""

from .stream import MslSyntaxError, TokenStream

_HALVES = ("half", "bfloat")
_NOT_BEFORE_A_CAST = ("operator", "sizeof", "alignof", "decltype", "alignas", "noexcept", "typename", "class")
_BEFORE_AN_OPERAND = ("return", "case", "else", "do")
_PREFIXES = ("+", "-", "!", "~", "*", "&", "++", "--")


def rewrite_casts(stream: TokenStream) -> None:
    """Rewrites the casts of a translation unit whose types may be half or bfloat."""
    types = {*_HALVES, *_type_parameters(stream)}
    ends: dict[int, int] = {}  # of the operand of a C-style cast, by the position of its parenthesis
    for i in range(len(stream) - 1, -1, -1):  # backwards, so that inner casts are done before outer ones
        token = stream.tokens[i]
        if token.text == "static_cast":
            token.text = "msl_cast"
        elif token.kind == "word" and token.text in types:
            _functional(stream, i)
        elif token.text == "(" and token.kind == "punct":
            _c_style(stream, i, types, ends)


def _type_parameters(stream: TokenStream) -> set[str]:
    """Names declared as `typename T` or `class T`: in templates, and harmlessly those of classes."""
    names = set()
    for i, token in enumerate(stream.tokens):
        if token.text in ("typename", "class") and token.kind == "word":
            before, name = stream.prev(i), stream.next(i)
            declared = stream.kind(name) == "word" and stream.at(stream.next(name)) in (",", ">", "=")
            if declared and stream.at(before) in ("<", ","):
                names.add(stream.at(name))
    return names


def _functional(stream: TokenStream, i: int) -> None:
    """T(x), unless it is T(), a declarator such as T(&name)[4], or part of another name."""
    parenthesis, before = stream.next(i), stream.at(stream.prev(i))
    if stream.at(parenthesis) != "(" or before in (*_NOT_BEFORE_A_CAST, ".", "->", "::"):
        return
    first = stream.next(parenthesis)
    last = stream.close(parenthesis)
    if first == last or (stream.at(first) in ("&", "*") and stream.at(stream.next(last)) in ("[", "(")):
        return
    stream.tokens[i].text = f"msl_cast<{stream.at(i)}>"


def _c_style(stream: TokenStream, i: int, types: set[str], ends: dict[int, int]) -> None:
    """(T)x: the operand is put into parentheses."""
    name = stream.next(i)
    close = stream.next(name)
    if stream.at(name) not in types or stream.at(close) != ")":
        return
    before = stream.prev(i)
    called = stream.kind(before) == "word" and stream.at(before) not in _BEFORE_AN_OPERAND
    if called or stream.at(before) in (")", "]", ">"):
        return
    end = _end_of_operand(stream, stream.next(close), ends)
    if end is None:
        return
    ends[i] = end
    stream.tokens[i].text = "msl_cast<"
    stream.tokens[close].text = ">("
    stream.tokens[end].text += ")"


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
