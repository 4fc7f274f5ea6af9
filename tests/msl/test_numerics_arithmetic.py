"""Operators of float, half and bfloat: each rounds once, and none is fused with another."""

import numpy as np
import pytest

from . import numerics as nm

ARITHMETIC = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
COMPARISONS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
LITERALS = {"half": ["0.1h", "65504.0H", "3h"], "bfloat": ["0.1bf", "1.00390626BF"]}


def sweep(T):
    results = {"x * y + x": (T, "x * y + x"), "x / y - y": (T, "x / y - y"), "-x": (T, "-x")}
    functions = ""
    for k, op in enumerate(ARITHMETIC):
        functions += f"{T} assign_{k}_{T}({T} x, {T} y) {{ x {op}= y; return x; }}\n"
        results[f"x {op} y"] = (T, f"x {op} y")
        results[f"x {op}= y"] = (T, f"assign_{k}_{T}(x, y)")
        results[f"{T}4 {op} {T}4"] = (T, f"({T}4(x) {op} {T}4(y)).w")
        results[f"{T}3 {op} {T}"] = (T, f"({T}3(x) {op} y).z")
        results[f"{T} {op} {T}2"] = (T, f"(x {op} {T}2(y)).x")
    for op in COMPARISONS:
        results[f"x {op} y"] = ("bool", f"x {op} y")
        results[f"{T}4 {op} {T}4"] = ("bool", f"({T}4(x) {op} {T}4(y)).w")
    for literal in LITERALS.get(T, ()):
        results[literal] = (T, literal)
    return nm.Sweep(f"arithmetic_{T}", {"x": T, "y": T}, results, functions)


SWEEPS = {T: sweep(T) for T in nm.FLOATS}


@pytest.mark.parametrize("T", nm.FLOATS)
@np.errstate(all="ignore")
def test_operators(checked, T):
    x, y = nm.thinned(nm.pairs_of(T, 60000), checked)
    got = SWEEPS[T].run(nm.compiled(list(SWEEPS.values()), checked), [x, y])
    for op, reference in ARITHMETIC.items():
        for label in (f"x {op} y", f"x {op}= y", f"{T}4 {op} {T}4", f"{T}3 {op} {T}", f"{T} {op} {T}2"):
            nm.assert_same(label, got[label], reference(x, y), x, y)
    for op, reference in COMPARISONS.items():
        for label in (f"x {op} y", f"{T}4 {op} {T}4"):
            nm.assert_same(label, got[label], reference(x, y), x, y)
    nm.assert_same("-x", got["-x"], -x, x)
    nm.assert_same("x * y + x", got["x * y + x"], x * y + x, x, y)
    nm.assert_same("x / y - y", got["x / y - y"], x / y - y, x, y)
    for literal in LITERALS.get(T, ()):
        value = np.full(len(x), float(literal.lower().rstrip("hbf")), nm.TYPES[T])
        nm.assert_same(literal, got[literal], value)
