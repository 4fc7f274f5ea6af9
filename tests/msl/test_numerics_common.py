"""metal_relational, metal_geometric, metal_matrix and metal_pack."""

import numpy as np
import pytest

from . import numerics as nm

CLASSES = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
}


def relational_sweep(T):
    results = {}
    for f in [*CLASSES, "isnormal"]:
        results[f] = ("bool", f"{f}(x)")
        results[f"vector {f}"] = ("bool", f"{f}({T}4(x)).w")
        if f in ("isnan", "isinf", "isfinite"):
            results |= {f"{space} {f}": ("bool", f"{space}::{f}(x)") for space in ("fast", "precise")}
    for f in ("isordered", "isunordered"):
        results[f] = ("bool", f"{f}(x, y)")
        results[f"vector {f}"] = ("bool", f"{f}({T}4(x), {T}4(y)).y")
    results["select"] = (T, "select(x, y, x < y)")
    results["vector select"] = (T, f"select({T}3(x), {T}3(y), bool3(x < y, x < y, y < x)).z")
    return nm.Sweep(f"relational_{T}", {"x": T, "y": T}, results)


LOGIC = nm.Sweep(
    "logic",
    {"a": "bool", "b": "bool", "c": "bool"},
    {
        "all": ("bool", "all(bool3(a, b, c))"),
        "any": ("bool", "any(bool3(a, b, c))"),
        "all of one": ("bool", "all(a)"),
        "any of one": ("bool", "any(a)"),
        "and": ("bool", "(bool2(a, b) && bool2(c, c)).y"),
        "or": ("bool", "(bool2(a, b) || bool2(c, c)).y"),
        "not": ("bool", "(!bool2(a, b)).y"),
    },
)


def geometric_sweep(T):
    results = {
        "dot": (T, "dot(u, v)"),
        "fast dot": (T, "fast::dot(u, v)"),
        "precise dot": (T, "precise::dot(u, v)"),
        "length_squared": (T, "length_squared(u)"),
        "length": (T, "length(u)"),
        "fast length": (T, "fast::length(u)"),
        "distance": (T, "distance(u, v)"),
        "normalize": (T, "normalize(u).z"),
        "precise normalize": (T, "precise::normalize(u).z"),
    }
    results |= {f"cross {part}": (T, f"cross(u, v).{part}") for part in "xyz"}
    inputs = dict.fromkeys(["u0", "u1", "u2", "v0", "v1", "v2"], T)
    return nm.Sweep(
        f"geometric_{T}", inputs, results, variables=f" {T}3 u({T}3(u0, u1, u2)); {T}3 v({T}3(v0, v1, v2));"
    )


def matrix_sweep(T):
    M = f"{T}3x3"
    results = {f"product {c}{r}": (T, f"(m * transpose(w))[{c}][{r}]") for c in range(3) for r in range(3)}
    results |= {f"vector {r}": (T, f"(m * u)[{r}]") for r in range(3)}
    results |= {"sum": (T, "(m + w)[1][2]"), "difference": (T, "(m - w)[0][1]"), "scaled": (T, "(m * v2)[2][1]")}
    variables = f" {T}3 u(u0, u1, u2); {T}3 v(v0, v1, v2); {M} m(u, v, u + v); {M} w(v, u, u - v);"
    inputs = dict.fromkeys(["u0", "u1", "u2", "v0", "v1", "v2"], T)
    return nm.Sweep(f"matrix_{T}", inputs, results, variables=variables)


PACKED = {  # name: (bits of the components from the low ones on, scale of the largest code's magnitude, signed)
    "unorm4x8": ((8, 8, 8, 8), False),
    "snorm4x8": ((8, 8, 8, 8), True),
    "unorm2x16": ((16, 16), False),
    "snorm2x16": ((16, 16), True),
    "unorm10a2": ((10, 10, 10, 2), False),
}
PARTS = "xyzw"


def unpack_sweep(T):
    results = {}
    for name, (bits, _) in PACKED.items():
        results |= {f"{name} {k}": (T, f"unpack_{name}_to_{T}(word).{PARTS[k]}") for k in range(len(bits))}
    results |= {f"srgb {k}": (T, f"unpack_unorm4x8_srgb_to_{T}(word).{PARTS[k]}") for k in range(4)}
    results["srgb and back"] = ("uint", f"pack_{T}_to_srgb_unorm4x8(unpack_unorm4x8_srgb_to_{T}(word))")
    return nm.Sweep(f"unpack_{T}", {"word": "uint"}, results)


def pack_sweep(T):
    results = {}
    for name, (bits, _) in PACKED.items():
        results[name] = ("uint", f"pack_{T}_to_{name}({T}{len(bits)}({', '.join(PARTS[: len(bits)])}))")
    return nm.Sweep(f"pack_{T}", dict.fromkeys(PARTS, T), results)


SWEEPS = {(relational_sweep, T): relational_sweep(T) for T in nm.FLOATS}
SWEEPS |= {
    (make, T): make(T) for T in ("float", "half") for make in (geometric_sweep, matrix_sweep, unpack_sweep, pack_sweep)
}


def run(sweep, checked, points):
    points = nm.thinned(points, checked)
    return sweep.run(nm.compiled([*SWEEPS.values(), LOGIC], checked), points), points


@pytest.mark.parametrize("T", nm.FLOATS)
def test_relational(checked, T):
    got, (x, y) = run(SWEEPS[relational_sweep, T], checked, nm.pairs_of(T))
    with np.errstate(invalid="ignore"):
        wide, other = x.astype(np.float32), y.astype(np.float32)
    least = np.float32(nm.ml_dtypes.finfo(nm.TYPES[T]).smallest_normal)
    expected = {f: reference(wide) for f, reference in CLASSES.items()}
    expected["isnormal"] = np.isfinite(wide) & (np.abs(wide) >= least)
    expected["isunordered"] = np.isnan(wide) | np.isnan(other)
    expected["isordered"] = ~expected["isunordered"]
    for label, result in got.items():
        if "select" not in label:
            assert np.array_equal(result, expected[label.split()[-1]]), label
    nm.assert_same("select", got["select"], np.where(wide < other, y, x), x, y)
    nm.assert_same("select", got["vector select"], np.where(other < wide, y, x), x, y)


def test_logic(checked):
    a, b, c = (np.array(list(np.ndindex(2, 2, 2)), bool).T[k].copy() for k in range(3))
    got, _ = run(LOGIC, checked, [a, b, c])
    expected = {"all": a & b & c, "any": a | b | c, "all of one": a, "any of one": a, "and": b & c, "or": b | c}
    for label, result in (expected | {"not": ~b}).items():
        assert np.array_equal(got[label], result), label


def vectors(T):
    rng = np.random.default_rng(11)
    return [rng.standard_normal(3000).astype(nm.TYPES[T]) for _ in range(6)]


@pytest.mark.parametrize("T", ["float", "half"])
def test_geometric(checked, T):
    """Each operation rounds once: numpy does the same in the same order."""
    got, (a, b, c, d, e, f) = run(SWEEPS[geometric_sweep, T], checked, vectors(T))
    dot, square = a * d + b * e + c * f, a * a + b * b + c * c
    length = np.sqrt(square)
    apart = np.sqrt((a - d) * (a - d) + (b - e) * (b - e) + (c - f) * (c - f))
    expected = {"length_squared": square, "distance": apart}
    expected |= {"cross x": b * f - c * e, "cross y": c * d - a * f, "cross z": a * e - b * d}
    expected |= {label: dot for label in got if "dot" in label}
    expected |= {label: length for label in got if label.endswith("length")}
    expected |= {label: c / length for label in got if "normalize" in label}
    for label, result in got.items():
        nm.assert_same(label, result, expected[label], a, b, c)


@pytest.mark.parametrize("T", ["float", "half"])
def test_matrices(checked, T):
    got, (a, b, c, d, e, f) = run(SWEEPS[matrix_sweep, T], checked, vectors(T))
    u, v = np.stack([a, b, c]), np.stack([d, e, f])
    m, w = np.stack([u, v, u + v]), np.stack([v, u, u - v])  # columns
    for column in range(3):
        for row in range(3):
            expected = m[0, row] * w[0, column] + m[1, row] * w[1, column] + m[2, row] * w[2, column]
            nm.assert_same("product", got[f"product {column}{row}"], expected)
    for row in range(3):
        nm.assert_same("vector", got[f"vector {row}"], m[0, row] * a + m[1, row] * b + m[2, row] * c)
    nm.assert_same("sum", got["sum"], (m + w)[1, 2])
    nm.assert_same("difference", got["difference"], (m - w)[0, 1])
    nm.assert_same("scaled", got["scaled"], m[2, 1] * f)


@pytest.mark.parametrize("T", ["float", "half"])
def test_unpacking(checked, T):
    words = np.concatenate([np.arange(1 << 16, dtype=np.uint32) * np.uint32(65537), nm.patterns("uint", 20000)])
    got, (words,) = run(SWEEPS[unpack_sweep, T], checked, [words])
    for name, (bits, signed) in PACKED.items():
        at = 0
        for k, n in enumerate(bits):
            code = (words >> np.uint32(at) & np.uint32(2**n - 1)).astype(np.int64)
            at += n
            if signed:
                code = np.where(code >= 2 ** (n - 1), code - 2**n, code)
            value = np.maximum(code.astype(np.float32) / np.float32(2 ** (n - signed) - 1), np.float32(-1))
            nm.assert_same(name, got[f"{name} {k}"], value.astype(nm.TYPES[T]), words)
    for k in range(4):
        code = (words >> np.uint32(8 * k) & np.uint32(255)).astype(np.float64) / 255
        linear = code if k == 3 else np.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4)
        nm.assert_within("srgb", got[f"srgb {k}"], linear, T, 4 if T == "float" else 1, words)
    if T == "float":
        assert np.array_equal(got["srgb and back"], words)


@pytest.mark.parametrize("T", ["float", "half"])
@np.errstate(all="ignore")
def test_packing(checked, T):
    rng = np.random.default_rng(2)
    dtype = nm.TYPES[T]
    ties = (np.arange(2 * 1024) / 2 / 1023).astype(dtype)
    values = np.concatenate([nm.edges(T), ties, -ties, rng.uniform(-1.2, 1.2, 8000).astype(dtype)])
    got, points = run(SWEEPS[pack_sweep, T], checked, [np.roll(values, k * 7) for k in range(4)])
    for name, (bits, signed) in PACKED.items():
        word, at = np.zeros(len(points[0]), np.uint32), 0
        for n, x in zip(bits, points, strict=False):
            wide = np.nan_to_num(x.astype(np.float32), nan=0)
            wide = np.clip(wide, -1 if signed else 0, 1)
            code = np.rint(wide * np.float32(2 ** (n - signed) - 1)).astype(np.int64) & (2**n - 1)
            word |= code.astype(np.uint32) << np.uint32(at)
            at += n
        nm.assert_same(name, got[name], word, *points)
