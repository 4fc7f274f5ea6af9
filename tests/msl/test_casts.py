"""Conversions between half and bfloat: every half, every bfloat, in every spelling, against numpy."""

import ml_dtypes
import numpy as np
import pytest

from torch_mtl4.msl.frontend import TokenStream, lex
from torch_mtl4.msl.frontend.casts import rewrite_casts
from torch_mtl4.msl.frontend.lexer import join

ALL = np.arange(2**16, dtype=np.uint16)


@pytest.mark.parametrize(
    ("kernel", "source", "target"),
    [("to_bfloat", np.float16, ml_dtypes.bfloat16), ("to_half", ml_dtypes.bfloat16, np.float16)],
)
def test_every_value(library, kernel, source, target):
    values = ALL.view(source)
    out = np.zeros((len(ALL), 8), target)
    lib = library("casts.metal")
    step = 64 if lib.checked else 1
    values = np.ascontiguousarray(values[::step])
    out = out[: len(values)]
    result = lib.kernel(kernel).dispatch(threads=len(values), threadgroup=256, buffers=[values, out])
    assert not result.report, str(result.report)
    with np.errstate(over="ignore"):
        expected = values.astype(np.float32).astype(target)
    nan = np.isnan(expected.astype(np.float32))
    for column in out.T:
        assert np.array_equal(np.isnan(column.astype(np.float32)), nan)
        zero = expected.astype(np.float32) == 0  # adding a zero loses the sign of one
        assert np.array_equal(column.view(np.uint16)[~nan & ~zero], expected.view(np.uint16)[~nan & ~zero])
        assert not column.astype(np.float32)[zero].any()


@pytest.mark.parametrize(
    ("source", "rewritten"),
    [
        ("half(x)", "msl_cast<half>(x)"),
        ("half()", "half()"),
        ("(half)x", "msl_cast<half>(x)"),
        ("(half)x.y[2](3) + 1", "msl_cast<half>(x.y[2](3)) + 1"),
        ("-(bfloat)-x * y", "-msl_cast<bfloat>(-x) * y"),
        ("(bfloat)(half)x", "msl_cast<bfloat>(msl_cast<half>(x))"),
        ("(half)f<int>(x)", "msl_cast<half>(f<int>(x))"),
        ("(half)a < b", "msl_cast<half>(a) < b"),
        ("sizeof(half)", "sizeof(half)"),
        ("f(half)", "f(half)"),
        ("operator half() const", "operator half() const"),
        ("return (half)x;", "return msl_cast<half>(x);"),
        (
            "template <typename T> T g(T x) { return T(x) + (T)x; }",
            "template <typename T> T g(T x) { return msl_cast<T>(x) + msl_cast<T>(x); }",
        ),
        ("template <typename T> void g(T (&a)[4], T (*f)(T));", "template <typename T> void g(T (&a)[4], T (*f)(T));"),
        ("float(x)", "float(x)"),
    ],
)
def test_rewriting(source, rewritten):
    stream = TokenStream(lex(source))
    rewrite_casts(stream)
    assert join(stream.tokens) == rewritten
