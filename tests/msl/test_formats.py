"""Element formats: every code and every rounding edge against ml_dtypes, bit by bit."""

import ml_dtypes
import numpy as np
import pytest

SCALARS = {"float": np.float32, "half": np.float16, "bfloat": ml_dtypes.bfloat16}
FLOATS = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
INTEGERS = {
    "int8": (8, True),
    "uint8": (8, False),
    "int4": (4, True),
    "uint4": (4, False),
    "int2": (2, True),
    "uint2": (2, False),
}
BITS = {"e4m3": 8, "e5m2": 8, "ue8m0": 8, "e2m1": 4, **{name: bits for name, (bits, _) in INTEGERS.items()}}
PER_THREAD = {
    "e4m3": 4,
    "e5m2": 2,
    "ue8m0": 4,
    "e2m1": 16,
    "int8": 4,
    "uint8": 4,
    "int4": 8,
    "uint4": 16,
    "int2": 4,
    "uint2": 8,
}


def pack_codes(codes, bits):
    """Bytes of small codes, the first in the low bits."""
    groups = codes.astype(np.uint8).reshape(-1, 8 // bits)
    return sum(groups[:, k] << (k * bits) for k in range(8 // bits)).astype(np.uint8)


def unpack_codes(data, bits):
    return np.stack([data >> (k * bits) & (2**bits - 1) for k in range(8 // bits)], 1).reshape(-1)


def codes_of(name):
    return np.tile(np.arange(2 ** BITS[name]), 64 // 2 ** BITS[name] + 1 if BITS[name] < 8 else 1)[
        : max(64, 2 ** BITS[name])
    ]


def decoded(name, codes):
    if name in FLOATS:
        return codes.astype(np.uint8).view(FLOATS[name]).astype(np.float32)
    bits, signed = INTEGERS[name]
    return np.where((codes >= 2 ** (bits - 1)) & signed, codes - 2**bits, codes).astype(np.float32)


def same_bits(a, b):
    """Equal bit by bit, any NaN being equal to any other."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype
    bits = np.uint16 if a.dtype.itemsize == 2 else np.uint32
    nan = np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32))
    return np.all((a.view(bits) == b.view(bits)) | nan)


def edges(scalar, name):
    """Every value of the format, its neighbours half-way to the next, and one unit in the last place around both."""
    values = decoded(name, np.arange(2 ** BITS[name]))
    values = np.unique(values[np.isfinite(values)].astype(np.float64))
    grid = np.concatenate([values, (values[1:] + values[:-1]) / 2])
    near = grid.astype(np.float32).astype(scalar)
    bits = np.uint16 if near.dtype.itemsize == 2 else np.uint32
    around = np.concatenate([near.view(bits) + np.array(d, bits) for d in (0, 1)] + [near.view(bits) - bits(1)]).view(
        scalar
    )
    return around[np.isfinite(around.astype(np.float32))]


@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("name", BITS)
def test_every_code_is_decoded_exactly(library, name, scalar):
    codes = codes_of(name)
    data = pack_codes(codes, BITS[name])
    values = np.full(len(codes), 77, SCALARS[scalar])
    lib = library("formats.metal")
    threads = len(codes) // PER_THREAD[name]
    result = lib.kernel(f"decode_{name}_{scalar}").dispatch(threads=threads, threadgroup=32, buffers=[data, values])
    assert not result.report, str(result.report)
    assert same_bits(values, decoded(name, codes).astype(SCALARS[scalar]))


@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("name", BITS)
def test_encoding_rounds_to_nearest_even(library, name, scalar):
    x = edges(SCALARS[scalar], name)
    wide = x.astype(np.float32)
    if name in INTEGERS:
        bits, signed = INTEGERS[name]
        low = -(2 ** (bits - 1)) if signed else 0
        expected = np.clip(np.rint(wide), low, low + 2**bits - 1).astype(int) & (2**bits - 1)
        keep = (wide >= low) & (wide <= low + 2**bits - 1)
    else:
        expected = x.astype(np.float32).astype(FLOATS[name]).view(np.uint8).astype(int)
        largest = decoded(name, np.arange(2 ** BITS[name]))
        keep = np.abs(wide) <= np.nanmax(np.where(np.isinf(largest), np.nan, largest))
        if name == "ue8m0":
            keep &= wide >= 2.0**-126
    x, expected = x[keep], expected[keep]
    count = len(x) // PER_THREAD[name] * PER_THREAD[name] or pytest.fail("no values")
    x, expected = x[:count], expected[:count]
    codes = np.full(count * BITS[name] // 8, 0x55, np.uint8)
    lib = library("formats.metal")
    threads = count // PER_THREAD[name]
    result = lib.kernel(f"encode_{name}_{scalar}").dispatch(threads=threads, threadgroup=32, buffers=[x, codes])
    assert not result.report, str(result.report)
    assert np.array_equal(unpack_codes(codes, BITS[name]), expected)


@pytest.mark.parametrize(
    ("name", "code_of"),
    [
        ("e4m3", {480: 0x7E, -1e9: 0xFE, np.inf: 0x7E, np.nan: 0x7F, -0.0: 0x80, 1e-9: 0}),
        ("e5m2", {61440: 0x7C, 61439: 0x7B, -1e9: 0xFC, np.inf: 0x7C, np.nan: 0x7E, -0.0: 0x80}),
        ("e2m1", {7: 7, -100: 15, np.inf: 7, np.nan: 0, -0.0: 8, 0.25: 0, 0.75: 2}),
        ("ue8m0", {0: 0, -1: 255, np.inf: 255, np.nan: 255, 1: 127, 1.5: 128, 1.49: 127}),
        ("int4", {9: 7, -9: 8, np.nan: 0, 2.5: 2, 3.5: 4}),
        ("uint2", {-1: 0, 9: 3, 0.5: 0, 1.5: 2}),
    ],
)
def test_values_out_of_range(library, name, code_of):
    x = np.resize(np.array(list(code_of), np.float32), PER_THREAD[name] * 2)
    expected = np.resize(np.array(list(code_of.values())), len(x))
    codes = np.zeros(len(x) * BITS[name] // 8, np.uint8)
    result = (
        library("formats.metal").kernel(f"encode_{name}_float").dispatch(threads=2, threadgroup=32, buffers=[x, codes])
    )
    assert np.array_equal(unpack_codes(codes, BITS[name]), expected)
    saturates = name not in ("e5m2", "ue8m0")
    assert ("format-range" in result.report.kinds) == saturates


def test_spellings_in_use(library):
    x = np.array([1.0, -448, 0.3, 2**-9], np.float32)
    code, back = np.zeros(4, np.uint8), np.zeros(4, np.float32)
    words = np.array([0x0123456789ABCDEF, 0xFEDCBA9876543210, 0, 2**64 - 1], np.uint64)
    nibbles = np.zeros((4, 16), np.float32)
    result = (
        library("formats.metal")
        .kernel("one_liners")
        .dispatch(threads=4, threadgroup=4, buffers=[x, code, back, words, nibbles])
    )
    assert not result.report, str(result.report)
    assert np.array_equal(code, x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))
    assert np.array_equal(back, x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32))
    assert np.array_equal(nibbles, unpack_codes(words.view(np.uint8), 4).reshape(4, 16))
