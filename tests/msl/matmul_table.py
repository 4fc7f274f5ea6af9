"""The element types that matmul2d multiplies, written down from Apple's documentation independently of the headers."""

import ml_dtypes
import numpy as np

FLOATS = {"half": np.float16, "bfloat": ml_dtypes.bfloat16, "float": np.float32}
INTEGERS = {"int8_t": np.int8, "uint8_t": np.uint8, "int32_t": np.int32}
FORMAT_BITS = {
    "int4b_format": 4,
    "uint4b_format": 4,
    "int2b_format": 2,
    "uint2b_format": 2,
    "metal_fp4_e2m1_format": 4,
    "metal_fp8_e4m3_format": 8,
    "metal_fp8_e5m2_format": 8,
}
FORMAT_FLOATS = {
    "metal_fp4_e2m1_format": ml_dtypes.float4_e2m1fn,
    "metal_fp8_e4m3_format": ml_dtypes.float8_e4m3fn,
    "metal_fp8_e5m2_format": ml_dtypes.float8_e5m2,
}
_TABLE = """
26.0 half half: half float
26.0 half int8_t: half float
26.0 int8_t half: half float
26.0 half float: float
26.0 float half: float
26.0 float float: float
26.0 float int8_t: float
26.0 int8_t float: float
26.0 int8_t int8_t: int32_t
26.1 bfloat bfloat: bfloat float
26.1 bfloat float: float
26.1 float bfloat: float
26.1 bfloat int8_t: bfloat float
26.1 int8_t bfloat: bfloat float
26.1 bfloat half: bfloat half float
26.1 half bfloat: bfloat half float
26.4 half uint8_t: half float
26.4 uint8_t half: half float
26.4 float uint8_t: float
26.4 uint8_t float: float
26.4 uint8_t uint8_t: int32_t
26.4 bfloat uint8_t: bfloat float
26.4 uint8_t bfloat: bfloat float
26.4 half int4b_format: half float
26.4 half uint4b_format: half float
26.4 bfloat int4b_format: bfloat float
26.4 bfloat uint4b_format: bfloat float
26.4 int8_t int4b_format: int32_t
26.4 uint8_t uint4b_format: int32_t
27.0 int8_t int2b_format: int32_t
27.0 uint8_t uint2b_format: int32_t
27.0 half int2b_format: half float
27.0 half uint2b_format: half float
27.0 bfloat int2b_format: bfloat float
27.0 bfloat uint2b_format: bfloat float
27.0 half metal_fp4_e2m1_format: half float
27.0 half metal_fp8_e4m3_format: half float
27.0 half metal_fp8_e5m2_format: half float
27.0 metal_fp4_e2m1_format metal_fp4_e2m1_format: half float
27.0 metal_fp8_e4m3_format metal_fp8_e4m3_format: half float
27.0 metal_fp8_e5m2_format metal_fp8_e5m2_format: half float
"""


def rows():
    """(left, right, destination) to the version of macOS that brought it, as major * 100 + minor."""
    table = {}
    for line in _TABLE.split("\n"):
        if line:
            types, destinations = line.split(": ")
            version, left, right = types.split()
            major, minor = version.split(".")
            table |= {(left, right, d): int(major) * 100 + int(minor) for d in destinations.split()}
    return table


ROWS = rows()
ELEMENTS = [*FLOATS, *INTEGERS, *FORMAT_BITS]


def storage(name, values):
    """The bytes or numbers of whole numbers in an element type; formats are packed along the last axis."""
    if name in FLOATS | INTEGERS:
        return values.astype((FLOATS | INTEGERS)[name])
    bits = FORMAT_BITS[name]
    if name in FORMAT_FLOATS:
        codes = values.astype(np.float32).astype(FORMAT_FLOATS[name]).view(np.uint8)
    else:
        codes = values.astype(np.int8).view(np.uint8) & (2**bits - 1)
    groups = codes.reshape(*codes.shape[:-1], -1, 8 // bits)
    return sum(groups[..., k] << (k * bits) for k in range(8 // bits)).astype(np.uint8)


def whole_numbers(name, rng, shape):
    """Small whole numbers that the element type holds, so that every product and sum is exact."""
    low, high = {"int2b_format": (-2, 2), "uint2b_format": (0, 4)}.get(
        name, (0, 5) if name.startswith("u") else (-4, 5)
    )
    return rng.integers(low, high, shape)
