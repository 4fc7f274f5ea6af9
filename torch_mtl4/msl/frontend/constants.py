"""Values of function constants as C++."""

import ast
import math
import operator

from .stream import MslSyntaxError

_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def constant_index(text: str) -> int:
    """Value of an integer expression such as `300 + 1`."""

    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return _ARITHMETIC[type(node.op)](value(node.left), value(node.right))
        raise MslSyntaxError(f"index of a function constant: expected integers and + - *, got {text!r}")

    return value(ast.parse(text.strip(), mode="eval").body)


def constant_literal(type_name: str, value) -> str:
    """C++ literal of a function constant."""
    if isinstance(value, (list, tuple)):
        return f"{type_name}({', '.join(scalar_literal(v) for v in value)})"
    return f"({type_name})({scalar_literal(value)})"


def scalar_literal(value) -> str:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, (bool, int)):
        return str(int(value)) + ("ul" if value > 2**63 - 1 else "")
    if not isinstance(value, float):
        raise TypeError(f"compile: expected function constants to be numbers or tuples of them, got {value!r}")
    if math.isnan(value):
        return '__builtin_nanf("")'
    if math.isinf(value):
        return "-__builtin_inff()" if value < 0 else "__builtin_inff()"
    return f"{value!r}f"
