"""metal_math and metal_common over float and half, plain, fast and precise, within the bounds of the specification.

The bounds are those of the tables "accuracy of single-precision operations with fast math disabled" and "of
half-precision operations" of the Metal Shading Language specification. The namespace fast is held to them, too: its own
table is wider everywhere. Subnormals are kept here, which the specification allows and does not require.
"""

import mpmath
import numpy as np
import pytest

from . import numerics as nm

ROUNDED = 0.5 + 1e-6  # correctly rounded; the reference is float64, hence the small rest
EXACT = 0
# (function: bound of float, of half; reference in float64)
UNARY = {
    "acos": (4, 1, np.arccos),
    "acosh": (4, 1, np.arccosh),
    "asin": (4, 1, np.arcsin),
    "asinh": (4, 1, np.arcsinh),
    "atan": (5, 1, np.arctan),
    "atanh": (5, 1, np.arctanh),
    "ceil": (EXACT, EXACT, np.ceil),
    "cos": (4, 1, np.cos),
    "cosh": (4, 1, np.cosh),
    "exp": (4, 1, np.exp),
    "exp2": (4, 1, np.exp2),
    "exp10": (4, 1, lambda x: np.float64(10) ** x),
    "fabs": (EXACT, EXACT, np.abs),
    "abs": (EXACT, EXACT, np.abs),
    "floor": (EXACT, EXACT, np.floor),
    "log": (4, 1, np.log),
    "log2": (4, 1, np.log2),
    "log10": (4, 1, np.log10),
    "rint": (EXACT, EXACT, np.rint),
    "round": (EXACT, EXACT, lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
    "rsqrt": (ROUNDED, ROUNDED, lambda x: 1 / np.sqrt(x)),
    "saturate": (EXACT, EXACT, lambda x: np.where(x > 0, np.minimum(x, 1), 0.0)),
    "sign": (EXACT, EXACT, lambda x: np.where(np.isnan(x), 0.0, np.where(x == 0, x, np.sign(x)))),
    "sin": (4, 1, np.sin),
    "sinh": (4, 1, np.sinh),
    "sqrt": (ROUNDED, ROUNDED, np.sqrt),
    "tan": (6, 1, np.tan),
    "tanh": (5, 1, np.tanh),
    "trunc": (EXACT, EXACT, np.trunc),
}
OF_PI = {"sinpi": (4, 1), "cospi": (4, 1), "tanpi": (6, 1)}
BINARY = {
    "atan2": (6, 1, np.arctan2),
    "copysign": (EXACT, EXACT, np.copysign),
    "divide": (ROUNDED, ROUNDED, np.divide),
    "fdim": (ROUNDED, ROUNDED, lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0))),
    "fmax": (EXACT, EXACT, lambda x, y: np.where((x < y) | np.isnan(x), y, x)),
    "fmin": (EXACT, EXACT, lambda x, y: np.where((y < x) | np.isnan(x), y, x)),
    "max": (EXACT, EXACT, lambda x, y: np.where((x < y) | np.isnan(x), y, x)),
    "min": (EXACT, EXACT, lambda x, y: np.where((y < x) | np.isnan(x), y, x)),
    "fmod": (EXACT, EXACT, np.fmod),
    "pow": (16, 1, np.power),
    "powr": (16, 1, np.power),
    "step": (EXACT, EXACT, lambda edge, x: np.where(x < edge, 0.0, 1.0)),
}
SPACES = {"": "", "fast::": "fast_", "precise::": "precise_"}


def functions(T):
    """Functions that return more than one value, one of them at a time."""
    return f"""
{T} sincos_sine({T} x) {{ {T} c; return sincos(x, c); }}
{T} sincos_cosine({T} x) {{ {T} c; sincos(x, c); return c; }}
{T} frexp_fraction({T} x) {{ int e; return frexp(x, e); }}
int frexp_exponent({T} x) {{ int e; frexp(x, e); return e; }}
{T} modf_fraction({T} x) {{ {T} w; return modf(x, w); }}
{T} modf_whole({T} x) {{ {T} w; modf(x, w); return w; }}
{T}4 vector_frexp({T}4 x) {{ int4 e; {T}4 f = frexp(x, e); return ldexp(f, e); }}
{T}4 vector_modf({T}4 x) {{ {T}4 w; {T}4 f = modf(x, w); return f + w; }}
"""


def unary_sweep(T):
    results = {}
    for f in [*UNARY, *OF_PI, "fract"]:
        for space in SPACES:
            results[space + f] = (T, f"{space}{f}(x)")
        results["vector " + f] = (T, f"{f}({T}4({T}(1), {T}(0), {T}(1), x)).w")
    for f in ("sincos_sine", "sincos_cosine", "frexp_fraction", "modf_fraction", "modf_whole"):
        results[f] = (T, f"{f}(x)")
    results["frexp_exponent"] = ("int", "frexp_exponent(x)")
    results["ilogb"] = ("int", "ilogb(x)")
    results["vector ilogb"] = ("int", f"ilogb({T}4(x)).z")
    results["vector frexp"] = (T, f"vector_frexp({T}4(x)).y")
    results["vector modf"] = (T, f"vector_modf({T}4(x)).y")
    return nm.Sweep(f"unary_{T}", {"x": T}, results, functions(T))


def binary_sweep(T):
    results = {}
    for f in [*BINARY, "nextafter"]:
        for space in SPACES:
            results[space + f] = (T, f"{space}{f}(x, y)")
        results["vector " + f] = (T, f"{f}({T}4({T}(1), {T}(0), {T}(1), x), {T}4({T}(2), {T}(0), {T}(1), y)).w")
        if f != "nextafter":
            results["vector, scalar " + f] = (T, f"{f}({T}2({T}(1), x), y).y")
    return nm.Sweep(f"binary_{T}", {"x": T, "y": T}, results)


def ternary_sweep(T):
    names = ["fma", "mix", "clamp", "smoothstep"]
    names += ["min3", "max3", "median3", "fmin3", "fmax3", "fmedian3"]
    results = {f: (T, f"{f}(x, y, z)") for f in names}
    results |= {f"vector {f}": (T, f"{f}({T}3(x), {T}3(y), {T}3(z)).z") for f in names}
    results["x*y+z"] = (T, "x * y + z")
    return nm.Sweep(f"ternary_{T}", {"x": T, "y": T, "z": T}, results)


def ldexp_sweep(T):
    results = {"ldexp": (T, "ldexp(x, e)"), "vector ldexp": (T, f"ldexp({T}4(x), int4(e)).w")}
    return nm.Sweep(f"ldexp_{T}", {"x": T, "e": "int"}, results)


SWEEPS = {
    (make, T): make(T) for T in ("float", "half") for make in (unary_sweep, binary_sweep, ternary_sweep, ldexp_sweep)
}


def run(make, T, checked, points):
    """Results, and the points as float64."""
    points = nm.thinned(points, checked)
    got = SWEEPS[make, T].run(nm.compiled(list(SWEEPS.values()), checked), points)
    with np.errstate(invalid="ignore"):
        return got, [p.astype(np.float64) if p.dtype.kind == "f" else p for p in points]


def points_unary(T):
    if T == "half":
        return nm.every(T)
    rng = np.random.default_rng(7)
    ranges = [rng.uniform(-a, a, 4000) for a in (1.0, 4.0, 100.0)] + [1 + rng.uniform(-1e-3, 1e-3, 2000)]
    return np.concatenate([nm.edges(T), nm.patterns(T, 12000), *(r.astype(np.float32) for r in ranges)])


def judge(label, got, exact, T, bound, *points):
    if bound == EXACT:
        nm.assert_same(label, got, exact.astype(nm.TYPES[T]), *points)
    else:
        nm.assert_within(label, got, exact, T, bound, *points)


@pytest.mark.parametrize("T", ["float", "half"])
@np.errstate(all="ignore")
def test_functions_of_one_argument(checked, T):
    got, (x,) = run(unary_sweep, T, checked, [points_unary(T)])
    for f, (float_bound, half_bound, reference) in UNARY.items():
        for label in [space + f for space in SPACES] + ["vector " + f]:
            judge(label, got[label], reference(x), T, float_bound if T == "float" else half_bound, x)
    for f in ("sin", "cos"):
        label = {"sin": "sincos_sine", "cos": "sincos_cosine"}[f]
        judge(label, got[label], UNARY[f][2](x), T, 4 if T == "float" else 1, x)


@pytest.mark.parametrize("T", ["float", "half"])
def test_functions_of_multiples_of_pi(checked, T):
    got, (x,) = run(unary_sweep, T, checked, [points_unary(T)[:: 1 if T == "float" else 7]])
    finite = np.isfinite(x)
    with np.errstate(invalid="ignore"):
        sine, cosine = (
            np.array([float(f(mpmath.mpf(v))) if ok else np.nan for v, ok in zip(x, finite, strict=True)])
            for f in (mpmath.sinpi, mpmath.cospi)
        )
        with np.errstate(divide="ignore"):
            exact = {"sinpi": sine, "cospi": cosine, "tanpi": sine / cosine}
        pole = np.isinf(exact["tanpi"])
        for f, (float_bound, half_bound) in OF_PI.items():
            for label in [space + f for space in SPACES] + ["vector " + f]:
                keep = ~pole if f == "tanpi" else slice(None)
                judge(label, got[label][keep], exact[f][keep], T, float_bound if T == "float" else half_bound, x[keep])
                if f == "tanpi":
                    assert np.isinf(got[label][pole]).all()


@pytest.mark.parametrize("T", ["float", "half"])
@np.errstate(all="ignore")
def test_parts_of_a_number(checked, T):
    got, (x,) = run(unary_sweep, T, checked, [points_unary(T)])
    dtype = nm.TYPES[T]
    below_one = np.nextafter(dtype(1), dtype(0))
    fraction = np.where(np.isinf(x), np.nan, x - np.floor(x))  # exact in float64 but for tiny x, which then is below 0
    fraction = fraction.astype(dtype)
    fraction = np.where(fraction >= 1, below_one, fraction)
    for label in [space + "fract" for space in SPACES] + ["vector fract"]:
        nm.assert_same(label, got[label], fraction, x)
    mantissa, exponent = np.frexp(x)
    nm.assert_same("frexp", got["frexp_fraction"], mantissa.astype(dtype), x)
    finite = np.isfinite(x)
    nm.assert_same("frexp", got["frexp_exponent"][finite], exponent[finite].astype(np.int32), x[finite])
    part, whole = np.modf(x)
    nm.assert_same("modf", got["modf_fraction"], part.astype(dtype), x)
    nm.assert_same("modf", got["modf_whole"], whole.astype(dtype), x)
    nonzero = finite & (x != 0)
    for label in ("ilogb", "vector ilogb"):
        nm.assert_same(label, got[label][nonzero], (exponent[nonzero] - 1).astype(np.int32), x[nonzero])
    nm.assert_same("frexp and ldexp", got["vector frexp"], x.astype(dtype), x)
    nm.assert_same("modf", got["vector modf"], (part + whole).astype(dtype), x)


@pytest.mark.parametrize("T", ["float", "half"])
@np.errstate(all="ignore")
def test_functions_of_two_arguments(checked, T):
    got, (x, y) = run(binary_sweep, T, checked, nm.pairs_of(T))
    for f, (float_bound, half_bound, reference) in BINARY.items():
        keep = slice(None) if f != "powr" else ~(x < 0)
        for label in [space + f for space in SPACES] + ["vector " + f, "vector, scalar " + f]:
            bound = float_bound if T == "float" else half_bound
            judge(label, got[label][keep], reference(x, y)[keep], T, bound, x[keep], y[keep])
    following = np.where(x == y, y, np.nextafter(x.astype(nm.TYPES[T]), y.astype(nm.TYPES[T]))).astype(nm.TYPES[T])
    for label in ("nextafter", "fast::nextafter", "precise::nextafter", "vector nextafter"):
        nm.assert_same(label, got[label], following, x, y)


@pytest.mark.parametrize("T", ["float", "half"])
@np.errstate(all="ignore")
def test_functions_of_three_arguments(checked, T):
    x, y = nm.pairs_of(T)
    z = np.random.default_rng(9).permutation(y)
    got, wide = run(ternary_sweep, T, checked, [x, y, z])
    dtype = nm.TYPES[T]
    x, y, z = (w.astype(dtype) for w in wide)

    def both(f):
        return got[f], got[f"vector {f}"]

    some = np.unique(np.linspace(0, len(x) - 1, 6000).astype(int))
    products = (wide[0] * wide[1])[some]  # exact: 48 bits of float64's 53, and no overflow
    exact = [
        float(mpmath.fadd(p, c, exact=True)) if np.isfinite(p) and np.isfinite(c) else p + c
        for p, c in zip(products, wide[2][some], strict=True)
    ]
    for result in both("fma"):
        nm.assert_within("fma", result[some], np.array(exact), T, ROUNDED, x[some], y[some], z[some])
    nm.assert_same("x*y+z", got["x*y+z"], x * y + z, x, y, z)
    for result in both("mix"):
        nm.assert_same("mix", result, x + (y - x) * z, x, y, z)
    low, high = np.fmin(y, z), np.fmax(y, z)
    number = ~(np.isnan(x) | np.isnan(y) | np.isnan(z))
    ordered = number & (y <= z)
    for result in both("clamp"):
        nm.assert_same("clamp", result[ordered] + dtype(0), np.clip(x, low, high)[ordered] + dtype(0), x[ordered])
    three = np.stack([x, y, z])
    for prefix in ("", "f"):
        for f, reference in (("min3", np.fmin.reduce(three)), ("max3", np.fmax.reduce(three))):
            for result in both(prefix + f):
                nm.assert_same(prefix + f, result + dtype(0), reference + dtype(0), x, y, z)
        for result in both(prefix + "median3"):
            nm.assert_same("median3", result[number] + dtype(0), np.sort(three, 0)[1][number] + dtype(0))
            assert np.isnan(result[np.isnan(three).all(0)]).all()
            single = np.isnan(three).sum(0) == 2
            nm.assert_same("median3", result[single] + dtype(0), np.fmax.reduce(three)[single] + dtype(0))
    t = (z - x) / (y - x)
    t = np.where(t > 0, np.minimum(t, dtype(1)), dtype(0))
    rising = number & (x < y)
    for result in both("smoothstep"):
        nm.assert_same("smoothstep", result[rising], (t * t * (dtype(3) - dtype(2) * t))[rising], x, y, z)


@pytest.mark.parametrize("T", ["float", "half"])
@np.errstate(all="ignore")
def test_ldexp(checked, T):
    x = nm.edges(T)
    powers = np.array([*range(-160, 160), 10**6, -(10**6), 2**31 - 1, -(2**31)], np.int32)
    got, (wide, e) = run(ldexp_sweep, T, checked, [np.repeat(x, len(powers)), np.tile(powers, len(x))])
    exact = np.ldexp(wide, np.clip(e, -700, 700)).astype(nm.TYPES[T])
    nm.assert_same("ldexp", got["ldexp"], exact, wide, e)
    nm.assert_same("ldexp", got["vector ldexp"], exact, wide, e)
