"""Encoding of every half, every bfloat and random floats into every element format, out of range and NaN included."""

import ml_dtypes
import numpy as np
import pytest

from . import numerics as nm
from .test_formats import BITS, FLOATS, INTEGERS, PER_THREAD, unpack_codes

NAN_CODE = {"e4m3": 0x7F, "e5m2": 0x7E, "e2m1": None}
SATURATES = {"e4m3": 0x7E, "e2m1": 0x7}


def encoded(name, x):
    """Codes, and which of the points have one that is not a matter of choice: all but signs of NaN."""
    wide = x.astype(np.float32)
    nan = np.isnan(wide)
    if name in INTEGERS:
        bits, signed = INTEGERS[name]
        low = -(2 ** (bits - 1)) if signed else 0
        whole = np.rint(np.clip(np.where(nan, 0, wide), low, low + 2**bits - 1)).astype(int)
        return whole & (2**bits - 1)
    if name == "ue8m0":
        nearest = np.floor(np.log2(np.maximum(wide, np.float32(2.0**-149)).astype(np.float64) * 4 / 3)) + 127
        codes = np.clip(np.nan_to_num(nearest, nan=0), 0, 254).astype(int)
        codes = np.where((codes == 0) & (wide >= 2.0**-127 * 1.5), 1, codes)
        beyond = nan | np.isinf(wide) | np.signbit(wide) & ~((wide == 0) & ~np.signbit(wide))
        return np.where(beyond | (wide >= 1.5 * 2.0**127), 255, codes)
    sign = np.where(np.signbit(wide), 1 << (BITS[name] - 1), 0)
    magnitude = np.abs(wide)
    if name in SATURATES:
        largest = float(ml_dtypes.finfo(FLOATS[name]).max)
        magnitude = np.minimum(np.where(nan, 0, magnitude), np.float32(largest))
    codes = magnitude.astype(FLOATS[name]).view(np.uint8).astype(int) | sign
    if NAN_CODE[name] is None:
        return np.where(nan, 0, codes)
    return np.where(nan, NAN_CODE[name] | sign, codes)


@pytest.mark.parametrize("T", nm.FLOATS)
@pytest.mark.parametrize("name", BITS)
@np.errstate(all="ignore")
def test_encoding(library, name, T):
    x = nm.points_of(T, 40000)
    if T == "float":
        x = np.concatenate([x, np.random.default_rng(6).standard_normal(20000).astype(np.float32) * 8])
    lib = library("formats.metal")
    (x,) = nm.thinned([x], lib.checked)
    x = x[: len(x) // PER_THREAD[name] * PER_THREAD[name]]
    data = np.zeros(len(x) * BITS[name] // 8, np.uint8)
    result = lib.kernel(f"encode_{name}_{T}").dispatch(
        threads=len(x) // PER_THREAD[name], threadgroup=32, buffers=[x, data]
    )
    assert result.report.kinds <= {"format-range"}, str(result.report)
    codes, expected = unpack_codes(data, BITS[name]).astype(int), encoded(name, x)
    wrong = np.flatnonzero(codes != expected)
    assert not len(wrong), [(x[k], hex(codes[k]), hex(expected[k])) for k in wrong[:5]]
