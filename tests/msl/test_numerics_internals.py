"""The names with __metal_ that kernels in the wild use: each is the documented function, bit by bit."""

import numpy as np
import pytest

from . import numerics as nm

ONE = ["fabs", "ceil", "floor", "fract", "rint", "round", "trunc", "sqrt", "rsqrt", "log", "log2", "log10"]
ONE += ["exp", "exp2", "exp10", "sin", "cos", "tan", "sinpi", "cospi", "tanpi", "sinh", "cosh", "tanh"]
ONE += ["asin", "acos", "atan", "asinh", "acosh", "atanh"]
TWO = ["atan2", "fmax", "fmin", "fmod", "pow", "powr", "divide", "nextafter"]
LANES = [f"simd_{op}" for op in ("sum", "product", "min", "max")]
LANES += [f"simd_prefix_{kind}_{op}" for kind in ("inclusive", "exclusive") for op in ("sum", "product")]
BITS = ["simd_and", "simd_or", "simd_xor"]
MOVES = ["simd_broadcast", "simd_shuffle"]
MOVES += [f"simd_shuffle_{way}" for way in ("xor", "up", "down", "rotate_up", "rotate_down")]
FUNCTIONS = """
float documented_modf(float x) { float w; return metal::modf(x, w) + w; }
float internal_modf(float x) { float w; return __metal_modf(x, &w, 0) + w; }
float documented_frexp(float x) { int e; float f = metal::frexp(x, e); return f + e; }
float never_called(float x) { return __metal_simd_xor(x); }
float internal_frexp(float x) { int e; float f = __metal_frexp(x, &e); return f + e; }
"""


def calls():
    """{what: (type, internal expression, documented expression)}"""
    found = {f: ("float", f"__metal_{f}(x, __METAL_MAYBE_FAST_MATH__)", f"{f}(x)") for f in ONE}
    found |= {f: ("float", f"__metal_{f}(x, y, __METAL_FAST_MATH__)", f"{f}(x, y)") for f in TWO}
    for f in ("max3", "min3", "median3"):
        found[f] = ("float", f"__metal_f{f}(x, y, 1.0f, __METAL_PRECISE_MATH__)", f"{f}(x, y, 1.0f)")
    found["fma"] = ("float", "__metal_fma(x, y, 1.0f)", "fma(x, y, 1.0f)")
    found["nextafter, no mode"] = ("float", "__metal_nextafter(x, y)", "nextafter(x, y)")
    found["ldexp"] = ("float", "__metal_ldexp(x, 3, 0)", "ldexp(x, 3)")
    found["modf"] = ("float", "internal_modf(x)", "documented_modf(x)")
    found["frexp"] = ("float", "internal_frexp(x)", "documented_frexp(x)")
    found |= {f: ("float", f"__metal_{f}(x)", f"{f}(x)") for f in LANES}
    found |= {f: ("uint", f"__metal_{f}(as_type<uint>(x))", f"{f}(as_type<uint>(x))") for f in BITS}
    found |= {f: ("float", f"__metal_{f}(x, ushort(1))", f"{f}(x, ushort(1))") for f in MOVES}
    for f in ("simd_shuffle_and_fill_up", "simd_shuffle_and_fill_down"):
        found[f] = ("float", f"__metal_{f}(x, y, 1, 32)", f"{f}(x, y, 1, 32)")
    found["lane"] = ("uint", "__metal_get_thread_index_in_simdgroup(uint())", "i % 32")
    found["lane, short"] = ("uint", "__metal_get_thread_index_in_simdgroup(ushort())", "i % 32")
    found["simdgroup"] = ("uint", "__metal_get_simdgroup_index_in_threadgroup(ushort())", "i % 256 / 32")
    for call in ("__metal_get_simdgroup_size(uint())", "__metal_get_simdgroup_size(ushort())", "get_simdgroup_size()"):
        found[call] = ("uint", call, "32")
    return found


CALLS = calls()
SWEEP = nm.Sweep(
    "internals",
    {"x": "float", "y": "float"},
    {f"internal {k}": (t, internal) for k, (t, internal, _) in CALLS.items()}
    | {f"documented {k}": (t, documented) for k, (t, _, documented) in CALLS.items()},
    FUNCTIONS,
)


@np.errstate(all="ignore")
def test_internal_names(checked):
    x, y = (p[:4096] for p in nm.pairs_of("float"))
    got = SWEEP.run(nm.compiled([SWEEP], checked), [x, y])
    for call in CALLS:
        nm.assert_same(call, got[f"internal {call}"], got[f"documented {call}"], x, y)


def limits_sweep(T):
    fields = ["max()", "min()", "lowest()"]
    if T in nm.FLOATS:
        fields += ["epsilon()", "infinity()", "quiet_NaN()", "signaling_NaN()", "denorm_min()"]
    results = {f: (T, f"numeric_limits<{T}>::{f}") for f in fields} | {
        "digits": ("int", f"numeric_limits<{T}>::digits")
    }
    return nm.Sweep(f"limits_{T}", {"x": "int"}, results)


LIMITS = {T: limits_sweep(T) for T in nm.TYPES}


@pytest.mark.parametrize("T", nm.TYPES)
def test_limits(checked, T):
    """numeric_limits against numpy."""
    got = LIMITS[T].run(nm.compiled(list(LIMITS.values()), checked), [np.zeros(1, np.int32)])
    if T in nm.FLOATS:
        info = nm.ml_dtypes.finfo(nm.TYPES[T])
        expected = {"max()": info.max, "min()": info.smallest_normal, "lowest()": info.min, "epsilon()": info.eps}
        expected |= {"denorm_min()": info.smallest_subnormal, "infinity()": np.inf, "digits": nm.PRECISION[T]}
        assert np.isnan(got["quiet_NaN()"].astype(np.float32)).all()
        assert np.isnan(got["signaling_NaN()"].astype(np.float32)).all()
    elif T == "bool":
        expected = {"max()": True, "min()": False, "lowest()": False, "digits": 1}
    else:
        info = np.iinfo(nm.TYPES[T])
        expected = {"max()": info.max, "min()": info.min, "lowest()": info.min, "digits": info.bits - (info.min < 0)}
    for field, value in expected.items():
        assert got[field][0] == np.array(value).astype(got[field].dtype), field
