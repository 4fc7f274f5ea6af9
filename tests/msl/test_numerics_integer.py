"""metal_integer and the integer operators over all integer types, against Python's integers."""

import re

import numpy as np
import pytest

from . import numerics as nm

UNSIGNED = {"char": "uchar", "short": "ushort", "int": "uint", "long": "ulong"}


class Facts:
    """What the references need to know of a type."""

    def __init__(self, T):
        self.bits = 8 * np.dtype(nm.TYPES[T]).itemsize
        self.signed = T in UNSIGNED
        self.low, self.high = (int(v) for v in (np.iinfo(nm.TYPES[T]).min, np.iinfo(nm.TYPES[T]).max))

    def clipped(self, x):
        return min(max(x, self.low), self.high)

    def raw(self, x):
        return x & (2**self.bits - 1)

    def rotated(self, x, n):
        n %= self.bits
        return self.raw(x) << n | self.raw(x) >> (self.bits - n)

    def reversed(self, x):
        return int(f"{self.raw(x):0{self.bits}b}"[::-1], 2)

    def extracted(self, x, offset, bits):
        field = self.raw(x) >> offset & (2**bits - 1)
        return field - 2**bits if bits and self.signed and field >> (bits - 1) else field

    def inserted(self, base, insert, offset, bits):
        field = 2**bits - 1
        return self.raw(base) & ~(field << offset) | (insert & field) << offset


UNARY = {
    "abs(x)": lambda f, x: abs(x),
    "popcount(x)": lambda f, x: f.raw(x).bit_count(),
    "clz(x)": lambda f, x: f.bits - f.raw(x).bit_length(),
    "ctz(x)": lambda f, x: (x & -x).bit_length() - 1 if x else f.bits,
    "reverse_bits(x)": lambda f, x: f.reversed(x),
    "-x": lambda f, x: -x,
    "~x": lambda f, x: ~x,
    "+x": lambda f, x: x,
}
BINARY = {
    "addsat(x, y)": lambda f, x, y: f.clipped(x + y),
    "subsat(x, y)": lambda f, x, y: f.clipped(x - y),
    "hadd(x, y)": lambda f, x, y: (x + y) >> 1,
    "rhadd(x, y)": lambda f, x, y: (x + y + 1) >> 1,
    "mulhi(x, y)": lambda f, x, y: x * y >> f.bits,
    "rotate(x, y)": lambda f, x, y: f.rotated(x, y),
    "min(x, y)": lambda f, x, y: min(x, y),
    "max(x, y)": lambda f, x, y: max(x, y),
    "x + y": lambda f, x, y: x + y,
    "x - y": lambda f, x, y: x - y,
    "x * y": lambda f, x, y: x * y,
    "x & y": lambda f, x, y: x & y,
    "x | y": lambda f, x, y: x | y,
    "x ^ y": lambda f, x, y: x ^ y,
}
TERNARY = {
    "madhi(x, y, z)": lambda f, x, y, z: (x * y >> f.bits) + z,
    "madsat(x, y, z)": lambda f, x, y, z: f.clipped(x * y + z),
    "min3(x, y, z)": lambda f, x, y, z: min(x, y, z),
    "max3(x, y, z)": lambda f, x, y, z: max(x, y, z),
    "median3(x, y, z)": lambda f, x, y, z: sorted((x, y, z))[1],
    "clamp(x, min(y, z), max(y, z))": lambda f, x, y, z: sorted((x, y, z))[1],
}
TWENTY_FOUR_BITS = {
    "mul24(x, y)": lambda f, x, y, z: x * y,
    "mad24(x, y, z)": lambda f, x, y, z: x * y + z,
}
COMPARISONS = {
    "x < y": lambda x, y: x < y,
    "x <= y": lambda x, y: x <= y,
    "x > y": lambda x, y: x > y,
    "x >= y": lambda x, y: x >= y,
    "x == y": lambda x, y: x == y,
    "x != y": lambda x, y: x != y,
}


FIELDS = {
    "extract_bits(x, offset, bits)": lambda f, x, y, offset, bits: f.extracted(x, offset, bits),
    "insert_bits(x, y, offset, bits)": lambda f, x, y, offset, bits: f.inserted(x, y, offset, bits),
}


def of_vectors(expression):
    """The same expression of the variables vx, vy and vz, vectors whose second component is x, y and z."""
    return "(" + re.sub(r"\b([xyz])\b", r"v\1", expression) + ").y"


def sweep(T):
    table = {e: (T, e) for e in [*UNARY, *BINARY, *TERNARY]}
    table |= {e: ("bool", e) for e in COMPARISONS}
    table["absdiff(x, y)"] = (UNSIGNED.get(T, T), "absdiff(x, y)")
    if T in ("int", "uint"):
        table |= {e: (T, e) for e in TWENTY_FOUR_BITS}
    table |= {f"vector {e}": (t, of_vectors(e)) for e, (t, _) in table.items()}
    variables = "".join(f" {T}3 v{v}({T}(1), {v}, {T}(2));" for v in "xyz")
    return nm.Sweep(f"integers_{T}", dict.fromkeys("xyz", T), table, variables=variables)


def field_sweep(T):
    table = {e: (T, e) for e in FIELDS}
    table |= {f"vector {e}": (T, of_vectors(e)) for e in FIELDS}
    variables = "".join(f" {T}3 v{v}({T}(1), {v}, {T}(2));" for v in "xy")
    inputs = {"x": T, "y": T, "offset": "uint", "bits": "uint"}
    return nm.Sweep(f"fields_{T}", inputs, table, variables=variables)


def shift_sweep(T):
    table = {"x << n": (T, "x << n"), "x >> n": (T, "x >> n")}
    table |= {f"vector {e}": (T, f"({T}4(x) {e[2:4]} {T}4({T}(n))).z") for e in list(table)}
    return nm.Sweep(f"shifts_{T}", {"x": T, "n": "uint"}, table)


def division_sweep(T):
    table = {e: (T, e) for e in ("x / y", "x % y")}
    table |= {f"vector {e}": (T, of_vectors(e)) for e in list(table)}
    variables = "".join(f" {T}3 v{v}({T}(1), {v}, {T}(2));" for v in "xy")
    return nm.Sweep(f"division_{T}", {"x": T, "y": T}, table, variables=variables)


SWEEPS = {(make, T): make(T) for T in nm.INTEGERS for make in (sweep, field_sweep, shift_sweep, division_sweep)}


def run(make, T, checked, points):
    points = nm.thinned(points, checked)
    got = SWEEPS[make, T].run(nm.compiled(list(SWEEPS.values()), checked), points)
    return got, [p.tolist() for p in points]


def judge(got, label, T, values, points):
    """Compares the scalar and the vector form with Python's integers, reduced to the type."""
    bits = 8 * np.dtype(nm.TYPES[T]).itemsize
    expected = np.array([v & (2**bits - 1) for v in values], f"u{bits // 8}").view(nm.TYPES[T])
    for form in (label, f"vector {label}"):
        nm.assert_same(f"{form} of {T}", got[form], expected, *points)


def points_of(T):
    x, y = nm.pairs_of(T, 1500)
    rng = np.random.default_rng(1)
    chosen = rng.permutation(len(x))[:4000]
    x, y = np.concatenate([nm.edges(T), x[chosen]]), np.concatenate([nm.edges(T), y[chosen]])
    return x, y, rng.permutation(y)


@pytest.mark.parametrize("T", nm.INTEGERS)
def test_functions_and_operators(checked, T):
    facts, (x, y, z) = Facts(T), points_of(T)
    got, points = run(sweep, T, checked, [x, y, z])
    xs, ys, zs = points
    for e, f in UNARY.items():
        judge(got, e, T, [f(facts, a) for a in xs], points)
    for e, f in BINARY.items():
        judge(got, e, T, [f(facts, a, b) for a, b in zip(xs, ys, strict=True)], points)
    for e, f in TERNARY.items():
        judge(got, e, T, [f(facts, a, b, c) for a, b, c in zip(xs, ys, zs, strict=True)], points)
    judge(got, "absdiff(x, y)", UNSIGNED.get(T, T), [abs(a - b) for a, b in zip(xs, ys, strict=True)], points)
    for e, f in COMPARISONS.items():
        expected = np.array([f(a, b) for a, b in zip(xs, ys, strict=True)])
        assert np.array_equal(got[e], expected), e
        assert np.array_equal(got[f"vector {e}"], expected), e


@pytest.mark.parametrize("T", ["int", "uint"])
def test_twenty_four_bits(checked, T):
    low, high = (-(2**23), 2**23 - 1) if T == "int" else (0, 2**24 - 1)
    rng = np.random.default_rng(5)
    edges = np.array([low, low + 1, 0, 1, 2, high // 2, high - 1, high])
    x = np.concatenate([np.repeat(edges, 8), rng.integers(low, high + 1, 500)]).astype(nm.TYPES[T])
    y = np.concatenate([np.tile(edges, 8), rng.integers(low, high + 1, 500)]).astype(nm.TYPES[T])
    got, points = run(sweep, T, checked, [x, y, rng.permutation(nm.patterns(T, len(x)))])
    for e, f in TWENTY_FOUR_BITS.items():
        judge(got, e, T, [f(None, a, b, c) for a, b, c in zip(*points, strict=True)], points)


@pytest.mark.parametrize("T", nm.INTEGERS)
def test_fields_of_bits(checked, T):
    facts = Facts(T)
    fields = [(o, b) for o in range(facts.bits + 1) for b in range(facts.bits + 1 - o)]
    values = nm.patterns(T, 2 * len(fields), 3)
    offset, bits = np.array(fields, np.uint32).T
    got, points = run(field_sweep, T, checked, [values[: len(fields)], values[len(fields) :], offset, bits])
    for e, f in FIELDS.items():
        judge(got, e, T, [f(facts, *p) for p in zip(*points, strict=True)], points)


@pytest.mark.parametrize("T", nm.INTEGERS)
def test_shifts(checked, T):
    values = np.concatenate([nm.edges(T), nm.patterns(T, 20)])
    amounts = np.arange(8 * values.itemsize, dtype=np.uint32)
    points = [np.repeat(values, len(amounts)), np.tile(amounts, len(values))]
    got, points = run(shift_sweep, T, checked, points)
    judge(got, "x << n", T, [a << n for a, n in zip(*points, strict=True)], points)
    judge(got, "x >> n", T, [a >> n for a, n in zip(*points, strict=True)], points)


@pytest.mark.parametrize("T", nm.INTEGERS)
def test_division(checked, T):
    x, y, _ = points_of(T)
    low = np.iinfo(nm.TYPES[T]).min
    defined = (y != 0) & ~((x == low) & (y == np.array(-1).astype(nm.TYPES[T])) & (low < 0))
    got, points = run(division_sweep, T, checked, [x[defined], y[defined]])
    xs, ys = points
    quotients = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(xs, ys, strict=True)]
    judge(got, "x / y", T, quotients, points)
    judge(got, "x % y", T, [a - q * b for a, q, b in zip(xs, quotients, ys, strict=True)], points)
