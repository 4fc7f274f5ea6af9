"""Conversions between all scalar types, and bit casts.

Sources of at most 16 bits are swept whole, wider ones at their edges, at ties of every target, and at random bit
patterns. A floating-point value that an integer type does not hold is left out: MSL leaves the result undefined. An
implicit conversion of an integer beyond 2**24 to bfloat is left out, too: clang rounds it twice, and only explicit ones
can be intercepted.
"""

import numpy as np
import pytest

from . import numerics as nm

PAIRS = [(source, target) for source in nm.TYPES for target in nm.TYPES if source != target]
SAME_SIZE = [
    ("char", "uchar"),
    ("half", "bfloat"),
    ("half", "short"),
    ("half", "ushort"),
    ("bfloat", "ushort"),
    ("bfloat", "short"),
    ("float", "int"),
    ("float", "uint"),
    ("int", "uint"),
    ("long", "ulong"),
]


def spellings(source, target):
    """{label: expression} of every way to convert x."""
    found = {
        "T(x)": f"{target}(x)",
        "(T)x": f"({target})x",
        "static_cast": f"static_cast<{target}>(x)",
        "in a template": f"convert_to<{target}>(x)",
        "vectors": f"{target}4({source}4(x)).z",
    }
    if {source, target} != {"half", "bfloat"}:  # explicit only
        found["implicit"] = f"implicit_{target}(x)"
    return found


def conversion_sweep(source, target):
    results = {label: (target, expression) for label, expression in spellings(source, target).items()}
    return nm.Sweep(f"convert_{source}_to_{target}", {"x": source}, results)


def bits_sweep():
    results, inputs = {}, {"word": "uint", "wide": "ulong"}
    for k, (a, b) in enumerate(SAME_SIZE):
        inputs[f"v{k}"] = a
        results[f"{a} as {b}"] = (b, f"as_type<{b}>(v{k})")
        results[f"{a} as {b} and back"] = (a, f"as_type<{a}>(as_type<{b}>(v{k}))")
        results[f"{a}4 as {b}4"] = (b, f"as_type<{b}4>({a}4({a}(0), {a}(0), v{k}, {a}(0))).z")
    for part in range(4):
        results[f"uint as uchar4, {part}"] = ("uchar", f"as_type<uchar4>(word)[{part}]")
        results[f"ulong as half4, {part}"] = ("half", f"as_type<half4>(wide)[{part}]")
    results["uint as ushort2"] = ("ushort", "as_type<ushort2>(word).y")
    results["ulong as float2"] = ("float", "as_type<float2>(wide).x")
    results["uchar4 as uint"] = ("uint", "as_type<uint>(as_type<uchar4>(word))")
    results["half4 as ulong"] = ("ulong", "as_type<ulong>(as_type<half4>(wide))")
    return nm.Sweep("bits", inputs, results)


CONVERT_TO = "template <typename T, typename U> T convert_to(U x) { return T(x); }\n"
IMPLICIT = "".join(f"template <typename U> {t} implicit_{t}(U x) {{ {t} y = x; return y; }}\n" for t in nm.TYPES)
SWEEPS = {pair: conversion_sweep(*pair) for pair in PAIRS}
BITS = bits_sweep()


def library(checked):
    return nm.compiled([nm.Sweep("nothing", {"x": "int"}, {}, CONVERT_TO + IMPLICIT), *SWEEPS.values(), BITS], checked)


def rounded(whole, name):
    """Python's integers rounded once to a float type, ties to even."""
    kept = []
    for n in whole:
        drop = max(0, abs(n).bit_length() - nm.PRECISION[name])
        quotient, rest = divmod(abs(n), 1 << drop)
        tie = 1 << drop >> 1
        quotient += drop > 0 and (rest > tie or (rest == tie and quotient & 1))
        kept.append(float(quotient << drop) * (-1 if n < 0 else 1))
    return np.array(kept).astype(np.float32).astype(nm.TYPES[name])


def converted(x, source, target):
    """(where the result is defined, the result)."""
    everywhere = np.ones(len(x), bool)
    if target == "bool":
        return everywhere, x != 0
    if source in nm.FLOATS and target in nm.FLOATS:
        return everywhere, x.astype(np.float32).astype(nm.TYPES[target])
    if source in nm.FLOATS:
        bounds = np.iinfo(nm.TYPES[target])
        whole = np.trunc(x.astype(np.float64))
        fits = (whole >= bounds.min) & (whole < float(bounds.max + 1))
        return fits, np.array([int(w) for w in np.where(fits, whole, 0)], nm.TYPES[target])
    if target in nm.FLOATS:
        return everywhere, rounded([int(v) for v in x], target)
    return everywhere, x.astype(nm.TYPES[target])


def points_of(source):
    points = nm.points_of(source, 6000)
    if points.itemsize <= 2:
        return points
    odd = [2**p + n for p in (7, 8, 10, 11, 23, 24) for n in (1, 3, 5)]  # one bit more than a target keeps
    ties = [sign * (n * 2**k + d) for n in odd for k in range(40) for d in (-1, 0, 1) for sign in (1, -1)]
    if source in nm.INTEGERS:
        bounds = np.iinfo(nm.TYPES[source])
        ties = [n for n in ties if bounds.min <= n <= bounds.max]
    return np.concatenate([points, np.array(ties).astype(nm.TYPES[source])])


@pytest.mark.parametrize("source", nm.TYPES)
@np.errstate(all="ignore")
def test_conversions(checked, source):
    points = points_of(source)
    for target in (t for s, t in PAIRS if s == source):
        fits, expected = converted(points, source, target)
        x, expected = nm.thinned([points[fits], expected[fits]], checked)
        got = SWEEPS[source, target].run(library(checked), [x])
        for label in got:
            keep = slice(None)
            if label == "implicit" and target == "bfloat" and source in nm.INTEGERS:
                keep = np.abs(x.astype(np.float64)) <= 2**24
            nm.assert_same(f"{source} to {target}, {label}", got[label][keep], expected[keep], x[keep])


def test_bits_stay(checked):
    count = 65536
    words, wide = nm.patterns("uint", count), nm.patterns("ulong", count)
    values = [np.resize(nm.points_of(a, count - 1000), count) for a, _ in SAME_SIZE]
    words, wide, *values = nm.thinned([words, wide, *values], checked)
    got = BITS.run(library(checked), [words, wide, *values])
    for (a, b), x in zip(SAME_SIZE, values, strict=True):
        for label in (f"{a} as {b}", f"{a}4 as {b}4", f"{a} as {b} and back"):
            result = got[label].view(x.dtype)
            if "bfloat" in (a, b):  # a signalling NaN may become quiet in the hands of clang
                nm.assert_same(label, result.view(nm.TYPES["bfloat"]), x.view(nm.TYPES["bfloat"]), x)
            else:
                assert np.array_equal(nm.bits_of(result), nm.bits_of(x)), label
    for part in range(4):
        assert np.array_equal(got[f"uint as uchar4, {part}"], words.view(np.uint8)[part::4])
        assert np.array_equal(nm.bits_of(got[f"ulong as half4, {part}"]), wide.view(np.uint16)[part::4])
    assert np.array_equal(got["uint as ushort2"], words.view(np.uint16)[1::2])
    assert np.array_equal(nm.bits_of(got["ulong as float2"]), wide.view(np.uint32)[::2])
    assert np.array_equal(got["uchar4 as uint"], words)
    assert np.array_equal(got["half4 as ulong"], wide)
