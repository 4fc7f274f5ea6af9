"""matmul2d against numpy, bit by bit: every row of the table of element types, scopes, transpositions, scale planes."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from torch_mtl4 import msl

from .conftest import KERNELS
from .matmul_table import FLOATS, FORMAT_BITS, INTEGERS, ROWS, storage, whole_numbers

SOURCE = (KERNELS / "matmul.metal").read_text()
LAYOUTS = ["m5", "pre_m5", "scrambled"]
SCOPES = {
    "thread": ("execution_thread", 1),
    "simdgroup": ("execution_simdgroup", 32),
    "simdgroups4": ("execution_simdgroups<4>", 128),
}
M, N, K = 20, 40, 512  # a partial tile at both edges; 512 elements of 2 bits are 128 bytes


def pointer(name):
    return "uchar" if name in FORMAT_BITS else name


def instance(kernel, name, types, scope, tile, transposed):
    """An instantiation of one of the kernels of matmul.metal under a name."""
    left, right, destination = types
    arguments = (
        f"{left}, {right}, {destination}, {scope}, {tile[0]}, {tile[1]}, {int(transposed[0])}, {int(transposed[1])}"
    )
    parameters = f"device {pointer(left)}*, device {pointer(right)}*, device {destination}*, constant Sizes&, uint2"
    return f'template [[host_name("{name}")]] kernel void {kernel}<{arguments}>({parameters});\n'


def library(text, checked=True):
    return msl.compile(SOURCE + text, name="matmul.metal", checked=checked)


def stored(name, values, transposed):
    """(the array as it lies in memory, the elements from one of its rows to the next)."""
    values = values.T if transposed else values
    width = values.shape[1]
    unit = 8 * 128 // FORMAT_BITS[name] if name in FORMAT_BITS else 1
    padded = np.zeros((values.shape[0], -(-width // unit) * unit), values.dtype)
    padded[:, :width] = values
    return storage(name, padded), padded.shape[1]


def run(lib, name, types, scope, tile, transposed, layout="m5", sizes=(M, N, K)):
    rng = np.random.default_rng(7)
    m, n, k = sizes
    a, b = whole_numbers(types[0], rng, (m, k)), whole_numbers(types[1], rng, (k, n))
    left, row_a = stored(types[0], a, transposed[0])
    right, row_b = stored(types[1], b, transposed[1])
    dtype = (FLOATS | INTEGERS)[types[2]]
    out = np.zeros((m, n), dtype)
    groups = (-(-n // tile[1]), -(-m // tile[0]))
    parameters = np.array([m, n, k, row_a, row_b], np.int32)
    kernel = lib.kernel(name)
    result = kernel.dispatch(groups, SCOPES[scope][1], [left, right, msl.Output(out), parameters], layout=layout)
    assert not result.report, str(result.report)
    assert np.array_equal(out.view(np.uint8), (a @ b).astype(np.float64).astype(dtype).view(np.uint8))


@pytest.fixture(scope="module")
def table_library():
    text = "".join(
        instance("multiply", "_".join(types), types, "execution_simdgroup", (16, 32), (False, True)) for types in ROWS
    )
    return library(text)


@pytest.mark.parametrize("types", ROWS, ids="-".join)
def test_every_legal_combination_of_types(table_library, types):
    run(table_library, "_".join(types), types, "simdgroup", (16, 32), (False, True))


VARIANTS = [(False, False), (False, True), (True, False), (True, True)]
MIXED = [("half", "half", "float"), ("half", "int4b_format", "half"), ("int8_t", "int8_t", "int32_t")]
TILES = {"thread": (8, 8), "simdgroup": (16, 32), "simdgroups4": (32, 32)}


@pytest.fixture(scope="module")
def variant_library():
    text = ""
    for scope, transposed, (i, types) in itertools.product(SCOPES, VARIANTS, enumerate(MIXED)):
        name = f"{i}_{scope}_{transposed[0]:d}{transposed[1]:d}"
        text += instance("multiply", f"multiply_{name}", types, SCOPES[scope][0], TILES[scope], transposed)
        if not any(t in FORMAT_BITS for t in types):
            text += instance("accumulate", f"accumulate_{name}", types, SCOPES[scope][0], TILES[scope], transposed)
    return library(text)


@pytest.mark.parametrize("transposed", VARIANTS)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("types", MIXED, ids="-".join)
def test_scopes_and_transpositions(variant_library, types, scope, transposed):
    name = f"{MIXED.index(types)}_{scope}_{transposed[0]:d}{transposed[1]:d}"
    run(variant_library, f"multiply_{name}", types, scope, TILES[scope], transposed)
    if not any(t in FORMAT_BITS for t in types):
        for layout in LAYOUTS:
            run(variant_library, f"accumulate_{name}", types, scope, TILES[scope], transposed, layout, (M, N, 96))


SHAPES = [(16, 32, 16), (32, 32, 16), (32, 32, 32), (16, 16, 32), (32, 16, 16)]


@pytest.fixture(scope="module")
def cooperative_library():
    text = ""
    for (m, n, k), (tl, tr) in itertools.product(SHAPES, VARIANTS):
        parameters = "device half*, device half*, device float*"
        name = f"cooperative_{m}_{n}_{k}_{tl:d}{tr:d}"
        arguments = f"half, {m}, {n}, {k}, {int(tl)}, {int(tr)}"
        text += f'template [[host_name("{name}")]] kernel void cooperative<{arguments}>({parameters});\n'
    return library(text)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("transposed", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_cooperative_inputs(cooperative_library, shape, transposed, layout):
    rng = np.random.default_rng(1)
    m, n, k = shape
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
    left, right = (
        np.ascontiguousarray(x.T if t else x).astype(np.float16) for x, t in zip((a, b), transposed, strict=True)
    )
    out = np.zeros((m, n), np.float32)
    kernel = cooperative_library.kernel(f"cooperative_{m}_{n}_{k}_{transposed[0]:d}{transposed[1]:d}")
    result = kernel.dispatch(1, 32, [left, right, msl.Output(out)], layout=layout)
    assert not result.report, str(result.report)
    assert np.array_equal(out, (a @ b).astype(np.float32))


@pytest.fixture(scope="module", params=[True, False], ids=["checked", "fast"])
def plain_library(request):
    return library("", checked=request.param)


BY_SHORT_NAME = {"e4m3": "metal_fp8_e4m3_format", "e5m2": "metal_fp8_e5m2_format", "e2m1": "metal_fp4_e2m1_format"}


def scaled_operand(name, rng, rows):
    """(packed codes, scale bytes, values with their scales)."""
    values = whole_numbers(name, rng, (rows, 256))
    exponents = rng.integers(125, 130, (rows, 8)).astype(np.uint8)
    scale = exponents.view(ml_dtypes.float8_e8m0fnu).astype(np.float64).repeat(32, 1)
    return storage(name, values), exponents, values * scale


@pytest.mark.parametrize("k_begin", [0, 64])
@pytest.mark.parametrize("short", BY_SHORT_NAME)
def test_scale_plane_of_the_right_operand(plain_library, short, k_begin):
    rng = np.random.default_rng(2)
    codes, exponents, b = scaled_operand(BY_SHORT_NAME[short], rng, N)
    a, out = rng.integers(-4, 5, (M, 256)), np.zeros((M, N), np.float32)
    sizes = np.array([M, N, 256, k_begin], np.int32)
    buffers = [a.astype(np.float16), codes, exponents, msl.Output(out), sizes]
    result = plain_library.kernel(f"scale_right_{short}").dispatch((2, 1), 64, buffers)
    assert not result.report, str(result.report)
    assert np.array_equal(out, (a[:, k_begin:] @ b[:, k_begin:].T).astype(np.float32))


@pytest.mark.parametrize("k_begin", [0, 64])
@pytest.mark.parametrize("short", BY_SHORT_NAME)
def test_scale_planes_of_tensors_that_the_host_binds(plain_library, short, k_begin):
    rng, name = np.random.default_rng(4), BY_SHORT_NAME[short]
    format = name.removeprefix("metal_").removesuffix("_format")
    (left, scales_a, a), (right, scales_b, b) = scaled_operand(name, rng, M), scaled_operand(name, rng, N)
    tensors = [
        msl.Tensor(codes, (256, rows), format=format, scales=scales)
        for codes, rows, scales in ((left, M, scales_a), (right, N, scales_b))
    ]
    out, sizes = np.zeros((M, N), np.float32), np.array([M, N, 256, k_begin], np.int32)
    result = plain_library.kernel(f"scale_both_{short}").dispatch((2, 1), 64, [*tensors, msl.Output(out), sizes])
    assert not result.report, str(result.report)
    assert np.array_equal(out, (a[:, k_begin:] @ b[:, k_begin:].T).astype(np.float32))


def test_scales_are_memory_like_any_other(plain_library):
    if not plain_library.checked:
        pytest.skip("a fast run sees guard pages only")
    codes, exponents, _ = scaled_operand("metal_fp8_e4m3_format", np.random.default_rng(2), 32)
    a, out = np.ones((32, 256), np.float16), np.zeros((32, 32), np.float32)
    buffers = [a, codes, exponents[:16], msl.Output(out), np.array([32, 32, 256, 0], np.int32)]
    result = plain_library.kernel("scale_right_e4m3").dispatch(1, 64, buffers)
    found = [f for f in result.report if f.kind == "out-of-bounds"]
    assert found and "'sb'" in found[0].message
    assert SOURCE.splitlines()[found[0].location.line - 1].strip() == "op.run(sa, sb, sc);"


def test_thread_scope_with_tensors_in_thread_memory(plain_library):
    rng = np.random.default_rng(5)
    x, w = rng.integers(-4, 5, (70, 8)), rng.integers(-4, 5, (8, 8))
    out = np.zeros((70, 8), np.float32)
    kernel = plain_library.kernel("thread_network")
    result = kernel.dispatch(
        threads=70, threadgroup=64, buffers=[x.astype(np.float16), w.astype(np.float16), msl.Output(out)]
    )
    assert not result.report, str(result.report)
    assert np.array_equal(out, np.maximum(x @ w, 0).astype(np.float32))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(16, 32), (32, 16), (16, 64)])
def test_reductions(plain_library, shape, layout):
    rng = np.random.default_rng(6)
    a, b = rng.integers(-4, 5, (shape[0], 32)), rng.integers(-4, 5, (32, shape[1]))
    out, rows, columns = (np.full(s, np.nan, np.float32) for s in (shape, (32, shape[0]), (32, shape[1])))
    buffers = [a.astype(np.float16), b.astype(np.float16), msl.Output(out), rows, columns]
    result = plain_library.kernel(f"reductions_{shape[0]}_{shape[1]}").dispatch(1, 32, buffers, layout=layout)
    assert not result.report, str(result.report)
    product = (a @ b).astype(np.float32)
    for owned, expected in ((rows, product.max(1)), (columns, product.sum(0))):
        assert np.array_equal(np.nanmax(owned, 0), expected)  # each row has an owner, and all its owners agree
        assert np.array_equal(np.nanmin(owned, 0), expected)
    assert np.array_equal(out, product - product.max(1, keepdims=True))
