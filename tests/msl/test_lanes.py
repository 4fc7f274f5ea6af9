"""Simdgroup and quadgroup operations against a lane-by-lane model, with all lanes active and with some of them."""

import ml_dtypes
import numpy as np
import pytest

TYPES = {
    "float": np.float32,
    "half": np.float16,
    "bfloat": ml_dtypes.bfloat16,
    "int": np.int32,
}
WIDTHS = {"simd": 32, "quad": 4}
MASKS = [0xFFFFFFFF, 0x0F0FF00A, 0x80000001]
BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
COMBINE = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum, **BITWISE}
SOURCES = {
    "shuffle": lambda i, k, w: k % w,
    "broadcast": lambda i, k, w: k % w,
    "shuffle_xor": lambda i, k, w: (i ^ k) % w,
    "shuffle_up": lambda i, k, w: i - k,
    "shuffle_down": lambda i, k, w: i + k,
    "shuffle_rotate_up": lambda i, k, w: (i - k) % w,
    "shuffle_rotate_down": lambda i, k, w: (i + k) % w,
}


def values(dtype):
    rng = np.random.default_rng(5)
    small = rng.integers(1, 5, 32) if np.dtype(dtype).kind in "iu" else rng.standard_normal(32)
    return small.astype(dtype)


def halves(op, lanes):
    """Reduces a group as a tree of halves; None stands for a lane that takes no part."""
    lanes = list(lanes)
    while len(lanes) > 1:
        low, high = lanes[: len(lanes) // 2], lanes[len(lanes) // 2 :]
        lanes = [b if a is None else a if b is None else op(a, b) for a, b in zip(low, high, strict=True)]
    return lanes[0]


def run(library, name, x, mask=0xFFFFFFFF, k=0):
    out = np.zeros_like(x)
    result = library("lanes.metal").kernel(name).dispatch(1, 32, [x, out, np.uint32(mask), np.uint32(k)])
    return out, result.report


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("group", WIDTHS)
@pytest.mark.parametrize("op", COMBINE)
def test_reductions(library, op, group, mask):
    for name, dtype in TYPES.items():
        if op in BITWISE and np.dtype(dtype).kind not in "iu":
            continue
        x, expected = values(dtype), values(dtype)
        for base in range(0, 32, WIDTHS[group]):
            lanes = range(base, base + WIDTHS[group])
            active = [i for i in lanes if mask >> i & 1]
            if active:
                expected[active] = halves(COMBINE[op], [x[i] if i in active else None for i in lanes])
        out, report = run(library, f"{group}_{op}_{name}", x, mask)
        assert not report, str(report)
        assert np.array_equal(out, expected), name


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("group", WIDTHS)
@pytest.mark.parametrize("op", ["sum", "product"])
@pytest.mark.parametrize("kind", ["inclusive", "exclusive"])
def test_prefixes(library, kind, op, group, mask):
    for name, dtype in TYPES.items():
        x, expected = values(dtype), values(dtype)
        for base in range(0, 32, WIDTHS[group]):
            total, identity = None, np.dtype(dtype).type(op == "product")
            for i in range(base, base + WIDTHS[group]):
                if mask >> i & 1:
                    following = x[i] if total is None else COMBINE[op](total, x[i])
                    expected[i] = following if kind == "inclusive" else identity if total is None else total
                    total = following
        out, report = run(library, f"{group}_prefix_{kind}_{op}_{name}", x, mask)
        assert not report, str(report)
        assert np.array_equal(out, expected), name


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("group", WIDTHS)
def test_broadcast_first(library, group, mask):
    x = values(np.float32)
    expected, width = x.copy(), WIDTHS[group]
    for i in range(32):
        if mask >> i & 1:
            first = next(j for j in range(i // width * width, 32) if mask >> j & 1)
            expected[i] = x[first]
    out, report = run(library, f"{group}_broadcast_first_float", x, mask)
    assert not report
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("k", [0, 1, 3, 31])
@pytest.mark.parametrize("group", WIDTHS)
@pytest.mark.parametrize("op", SOURCES)
def test_shuffles(library, op, group, k):
    width = WIDTHS[group]
    for name in ("half", "int"):
        x, expected = values(TYPES[name]), values(TYPES[name])
        for i in range(32):
            source = SOURCES[op](i % width, k, width)
            if 0 <= source < width:
                expected[i] = x[i // width * width + source]
        out, report = run(library, f"{group}_{op}_{name}", x, k=k)
        assert not report, str(report)
        assert np.array_equal(out, expected), name


@pytest.mark.parametrize(("group", "modulo"), [("simd", 32), ("simd", 8), ("quad", 4)])
@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("delta", [0, 1, 3])
def test_shuffle_and_fill(library, group, modulo, direction, delta):
    x, step = values(np.int32), -delta if direction == "up" else delta
    expected = x.copy()
    for i in range(32):
        base, source = i // modulo * modulo, i % modulo + step
        expected[i] = x[base + source] if 0 <= source < modulo else -x[base + source % modulo]
    out, report = run(library, f"{group}_shuffle_and_fill_{direction}_int", x, k=modulo << 8 | delta)
    assert not report
    assert np.array_equal(out, expected)


def test_reading_an_inactive_lane_is_reported(library):
    x = values(np.float16)
    _, report = run(library, "quad_shuffle_xor_half", x, mask=0xFFFFFFFE, k=1)
    assert report.kinds == {"inactive-lane"}
    assert "lane 0" in report.findings[0].message


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("pattern", ["mixed", "all", "none"])
def test_votes(library, mask, pattern):
    rng = np.random.default_rng(1)
    x = {"mixed": rng.integers(0, 2, 32), "all": np.ones(32), "none": np.zeros(32)}[pattern].astype(np.uint32)
    out = np.zeros((32, 10), np.uint64)
    result = library("lanes.metal").kernel("votes").dispatch(1, 32, [x, out, np.uint32(mask)])
    assert not result.report
    yes = sum(int(x[i]) << i for i in range(32) if mask >> i & 1)
    for i in range(32):
        expected = [0] * 10
        if mask >> i & 1:
            for n, width in ((0, 32), (5, 4)):
                base = i // width * width
                active, votes = mask >> base & (2**width - 1), yes >> base & (2**width - 1)
                first = (active & -active).bit_length() - 1
                expected[n : n + 5] = [votes, active, votes == active, votes != 0, first == i - base]
        assert out[i].tolist() == expected


def test_vectors(library):
    x = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
    out = np.zeros_like(x)
    result = library("lanes.metal").kernel("vectors").dispatch(1, 32, [x, out])
    assert not result.report
    assert np.array_equal(out, halves(np.add, list(x)) + x[np.arange(32) ^ 1])
