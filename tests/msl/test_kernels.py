"""Kernels against numpy, in the fast and in the checked build; a result counts only without findings."""

import struct

import numpy as np
import pytest

from torch_mtl4 import msl

RNG = np.random.default_rng(0)
LAYOUTS = ["m5", "pre_m5", "scrambled"]


def normal(*shape, dtype=np.float16):
    return RNG.standard_normal(shape).astype(dtype)


def dispatch(lib, name, *args, **kwargs):
    result = lib.kernel(name).dispatch(*args, **kwargs)
    assert not result.report, str(result.report)
    return result


def test_grid_that_the_threadgroup_does_not_divide(library):
    n = 100003
    a, b, c = RNG.random(n, np.float32), RNG.random(n, np.float32), np.full(n, np.nan, np.float32)
    params = struct.pack("<If", n, 0.5)
    dispatch(library("a_basic.metal"), "vector_add", threads=n, threadgroup=256, buffers=[a, b, msl.Output(c), params])
    assert np.array_equal(c, a + np.float32(0.5) * b)


def test_reduction_across_simdgroups(library):
    x, out = RNG.random((64, 1000), np.float32), np.full(64, np.nan, np.float32)
    result = dispatch(library("a_basic.metal"), "row_sum", 64, 256, [x, msl.Output(out), np.uint32(1000)])
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-5)
    assert result.barriers == 64
    assert result.threadgroup_bytes == 128


def test_vectors_swizzles_and_function_constants(library):
    h = normal(128, 4)
    out = np.full((128, 4), np.nan, np.float32)
    lib = library("a_basic.metal", use_half=1, shift=0.25)
    dispatch(lib, "vec_ops_half", 1, 128, [h, msl.Output(out)])
    v = h.astype(np.float32)
    v[:, [0, 1]] = v[:, [1, 0]] * 2
    v[:, :3] = np.stack([v[:, 0], v[:, 2], v[:, 1]], 1) + 1
    v[:, 3] = (v[:, 3].astype(np.float16) * np.float16(0.5)).astype(np.float32) + 0.5
    v[:, 0] = -v[:, 0]
    assert np.array_equal(out, np.abs(v))
    assert {c.name: c.defined for c in lib.constants} == {"use_half": True, "shift": True}


def test_atomics(library):
    x = RNG.integers(0, 256, 256 * 40).astype(np.uint8)
    histogram = np.zeros(256, np.uint32)
    dispatch(library("a_basic.metal"), "histogram", 40, 256, [x, histogram])
    assert np.array_equal(histogram, np.bincount(x, minlength=256))


def test_simdgroup_matrix_matmul(library):
    m, n, k = 128, 96, 64
    a, b, c = normal(m, k), normal(k, n), np.full((m, n), np.nan, np.float32)
    sizes = np.array([m, n, k, 0], np.uint32)
    lib = library("b_simdgroup_matmul.metal")
    dispatch(lib, "matmul_sg", (n // 32, m // 32), 128, [a, b, msl.Output(c), sizes])
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)


def test_tensor_handles_take_shape_and_strides_of_the_array(library):
    m, n, k = 100, 72, 96
    a, b, c = normal(m, k), normal(k, n), np.full((m, n), np.nan, np.float32)
    lib = library("c_tensorops_matmul.metal")
    dispatch(lib, "matmul_handle", ((n + 31) // 32, (m + 63) // 64), 128, [a, b, msl.Output(c)])
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cooperative_tensor_with_epilogue(library, layout):
    m, n, k = 100, 72, 96
    a, b, bias = normal(m, k), normal(n, k), normal(n, dtype=np.float32)
    c = np.full((m, n), np.nan, np.float16)
    lib = library("c_tensorops_matmul.metal")
    sizes = np.array([m, n, k, 0], np.int32)
    groups = ((n + 31) // 32, (m + 63) // 64)
    dispatch(lib, "matmul_coop", groups, 128, [a, b, msl.Output(c), bias, sizes], layout=layout)
    expected = np.maximum(a.astype(np.float32) @ b.astype(np.float32).T + bias, 0)
    np.testing.assert_allclose(c.astype(np.float32), expected, atol=2e-2)


def attention(q, k, v, causal, scale):
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    scores = np.einsum("hld,hsd->hls", q, k) * scale
    if causal:
        scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hls,hsd->hld", weights / weights.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("heads", "lq", "lk", "causal"), [(2, 128, 128, 0), (2, 100, 77, 0), (1, 128, 128, 1)])
@pytest.mark.parametrize("shuffle", [False, True])
def test_flash_attention(library, layout, heads, lq, lk, causal, shuffle):
    q, k, v = normal(heads, lq, 64), normal(heads, lk, 64), normal(heads, lk, 64)
    out = np.full((heads, lq, 64), np.nan, np.float16)
    params = struct.pack("<iifi", lq, lk, 0.125, causal)
    lib = library("d_flash_attention.metal")
    args = [q, k, v, msl.Output(out), params]
    dispatch(lib, "flash_attention", ((lq + 63) // 64, heads), 128, args, layout=layout, shuffle=shuffle)
    np.testing.assert_allclose(out.astype(np.float32), attention(q, k, v, causal, 0.125), atol=3e-3)
