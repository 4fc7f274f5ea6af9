"""Reads the function that an explicit instantiation names."""

from .stream import MslSyntaxError


def instantiated_function(words: list[str]) -> tuple[str, str]:
    """(name, C++ expression of the function) named by the words of an explicit instantiation."""
    parenthesis, depth, k = None, 0, 1
    while k < len(words) and parenthesis is None:
        if words[k] == "decltype":
            k = _close_word(words, k + 1)
        elif words[k] == "(" and depth == 0:
            parenthesis = k
        depth += (words[k] == "<") - (words[k] == ">")
        k += 1
    end = len(words) if parenthesis is None else parenthesis
    name = end - 1
    if words[name] == ">":
        depth = 0
        while True:
            depth += (words[name] == ">") - (words[name] == "<")
            name -= 1
            if depth == 0:
                break
    first = name
    while first > 1 and words[first - 1] == "::":
        first -= 2
    function = "&" + " ".join(words[first:end])
    if parenthesis is not None:  # template arguments may be deduced from the parameter list
        function = f"static_cast<void (*)({' '.join(words[parenthesis + 1 : -1])})>({function})"
    return words[name], function


def _close_word(words: list[str], i: int) -> int:
    depth = 0
    for k in range(i, len(words)):
        depth += (words[k] == "(") - (words[k] == ")")
        if depth == 0:
            return k
    raise MslSyntaxError("unbalanced ( in an explicit instantiation")
