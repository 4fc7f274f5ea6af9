"""Simdgroup and quadgroup operations over every type and its extremes, all lanes active, scalars and vectors.

Which lane a result comes from under masks of active lanes is the subject of test_lanes.py.
"""

import numpy as np
import pytest

from . import numerics as nm

SIMD_TYPES = [*nm.FLOATS, *nm.INTEGERS]
MOVED = ("bfloat", "float", "char", "ulong")  # one of each size: a move does not look at what it moves
WIDTHS = {"simd": 32, "quad": 4}


def lesser(a, b):
    return np.where((b < a) | (a != a), b, a)


def greater(a, b):
    return np.where((a < b) | (a != a), b, a)


REDUCTIONS = {"sum": np.add, "product": np.multiply, "min": lesser, "max": greater}
BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
PREFIXES = {
    f"prefix_{kind}_{op}": (kind, REDUCTIONS[op]) for kind in ("inclusive", "exclusive") for op in ("sum", "product")
}
MOVES = {  # call: source lane of lane i in a group of w
    "shuffle(x, 2)": lambda i, w: 2,
    "broadcast(x, 3)": lambda i, w: 3,
    "broadcast_first(x)": lambda i, w: 0,
    "shuffle_xor(x, 3)": lambda i, w: i ^ 3,
    "shuffle_rotate_up(x, 1)": lambda i, w: (i - 1) % w,
    "shuffle_rotate_down(x, 3)": lambda i, w: (i + 3) % w,
    "shuffle_up(x, 1)": lambda i, w: max(i - 1, 0) if i else i,
    "shuffle_down(x, 2)": lambda i, w: i + 2 if i + 2 < w else i,
}


def sweep(T):
    results = {}
    for prefix in WIDTHS:
        ops = [*REDUCTIONS, *PREFIXES, *(BITWISE if T in nm.INTEGERS else ())]
        results |= {f"{prefix}_{op}": (T, f"{prefix}_{op}(x)") for op in ops}
        if T in MOVED:
            results |= {f"{prefix}_{call}": (T, f"{prefix}_{call}") for call in MOVES}
            for direction in ("up", "down"):
                results[f"{prefix}_{direction}"] = (T, f"{prefix}_shuffle_and_fill_{direction}(x, y, ushort(1))")
        results[f"vector {prefix}_max"] = (T, f"{prefix}_max({T}2(y, x)).y")
    return nm.Sweep(f"lanes_{T}", {"x": T, "y": T}, results)


SWEEPS = {T: sweep(T) for T in SIMD_TYPES}


def reduced(op, groups):
    while groups.shape[1] > 1:
        half = groups.shape[1] // 2
        groups = op(groups[:, :half], groups[:, half:])
    return groups


def scanned(kind, op, groups):
    out = np.empty_like(groups)
    total = groups[:, 0]
    out[:, 0] = total if kind == "inclusive" else groups.dtype.type(op is np.multiply)
    for i in range(1, groups.shape[1]):
        out[:, i] = op(total, groups[:, i]) if kind == "inclusive" else total
        total = op(total, groups[:, i])
    return out


def points_of(T):
    """Whole threadgroups of extremes, of random patterns, and of small numbers."""
    rng = np.random.default_rng(8)
    small = rng.integers(1, 4, 1024) if T in nm.INTEGERS else rng.standard_normal(1024).astype(np.float32)
    x = [np.resize(nm.edges(T), 512), nm.patterns(T, 512, 3), small.astype(nm.TYPES[T])]
    return np.concatenate(x), nm.patterns(T, 2048, 4)


@pytest.mark.parametrize("T", SIMD_TYPES)
@np.errstate(all="ignore")
def test_lanes(checked, T):
    x, y = points_of(T)
    got = SWEEPS[T].run(nm.compiled(list(SWEEPS.values()), checked), [x, y])
    for prefix, width in WIDTHS.items():
        groups, fill = x.reshape(-1, width), y.reshape(-1, width)

        def expect(label, expected, of=groups):
            expected = np.broadcast_to(expected, of.shape).reshape(-1).astype(of.dtype)
            nm.assert_same(label, got[label], expected, x)

        for op, f in (REDUCTIONS | (BITWISE if T in nm.INTEGERS else {})).items():
            expect(f"{prefix}_{op}", reduced(f, groups))
        for op, (kind, f) in PREFIXES.items():
            expect(f"{prefix}_{op}", scanned(kind, f, groups))
        if T in MOVED:
            for call, source in MOVES.items():
                expect(f"{prefix}_{call}", groups[:, [source(i, width) for i in range(width)]])
            expect(f"{prefix}_up", np.concatenate([fill[:, -1:], groups[:, :-1]], 1))
            expect(f"{prefix}_down", np.concatenate([groups[:, 1:], fill[:, :1]], 1))
        expect(f"vector {prefix}_max", reduced(greater, groups))
