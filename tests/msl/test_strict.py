"""`check` accepts correct kernels, and names the line of what Apple's compiler refuses although clang does not."""

import pytest

from torch_mtl4 import msl

from . import (
    test_numerics_arithmetic,
    test_numerics_atomics,
    test_numerics_common,
    test_numerics_conversions,
    test_numerics_integer,
    test_numerics_lanes,
    test_numerics_math,
)
from .conftest import KERNELS

PRELUDE = "#include <metal_stdlib>\nusing namespace metal;\n"
KERNEL = "kernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {{ {} }}\n"


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.metal")), ids=lambda path: path.stem)
def test_correct_kernels_are_accepted(path):
    result = msl.check(path)
    assert result, "\n".join(map(str, result.findings))
    assert not result.notes
    assert result.kernels


@pytest.mark.parametrize("tier", msl.TIERS)
def test_every_tier_can_be_checked(tier):
    assert msl.check(PRELUDE + KERNEL.format("x[i] *= 2;"), tier=tier)


def sweeps():
    """Sources that call every function of the standard library, for every type that has it."""
    yield from (test_numerics_common.LOGIC, test_numerics_conversions.BITS, test_numerics_atomics.KERNELS)
    modules = (
        test_numerics_arithmetic, test_numerics_common, test_numerics_integer, test_numerics_lanes, test_numerics_math,
    )  # fmt: skip
    for module in modules:
        yield from module.SWEEPS.values()


def test_every_function_of_the_standard_library_is_accepted():
    for sweep in sweeps():
        result = msl.check(PRELUDE + sweep.source())
        assert result and not result.notes, (result.findings, result.notes)


@pytest.mark.parametrize("mistake", [f"E{i}" for i in range(1, 11)])
def test_mistake_is_rejected(mistake):
    source = (KERNELS / "strict_bad.metal").read_text().splitlines()
    line = source.index(f"#ifdef {mistake}") + 2
    if mistake == "E4":  # a write to constant memory: clang refuses that by itself
        with pytest.raises(msl.CompileError, match=rf"strict_bad\.metal:{line}:"):
            msl.check(KERNELS / "strict_bad.metal", defines={mistake: 1})
        return
    result = msl.check(KERNELS / "strict_bad.metal", defines={mistake: 1})
    assert {f"strict_bad.metal:{line}"} == {finding.location.place for finding in result.findings}
    assert {finding.kind for finding in result.findings} <= {"address-space", "missing-address-space"}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("non-ascii", "// naïve"),
        ("program-scope-variable", "int counter = 3;"),
        ("program-scope-variable", "constexpr float scale = 2.0f;"),
        ("program-scope-variable", "template <typename T> constexpr int size_of = sizeof(T);"),
        ("missing-address-space", "template <typename T> T first(T* p) { return p[0]; }"),
        ("missing-address-space", "struct S { float v; void set(const float& x) { v = x; } };"),
        ("static-local", "int count() { static int calls = 0; return ++calls; }"),
        ("not-in-msl", "float wide(float x) { double y = x; return float(y); }"),
        ("not-in-msl", "float twice(float x) { goto end; end: return x; }"),
        ("recursion", "int down(int n) { return n ? down(n - 1) : 0; }"),
        ("recursion", "int b(int); int a(int n) { return b(n); } int b(int n) { return n ? a(n - 1) : 0; }"),
    ],
)
def test_what_only_clang_accepts_is_reported(kind, text):
    result = msl.check(f"{PRELUDE}{text}\n{KERNEL.format('x[i] = 1;')}")
    assert {(f.kind, f.location.place) for f in result.findings} == {(kind, "kernel.metal:3")}


def test_whole_objects_lie_in_any_address_space():
    source = """
struct Pair { float a; int b; };
struct Nest { Pair pairs[2]; float4 v; };
kernel void k(device Pair* d [[buffer(0)]], constant Nest& n [[buffer(1)]], device float4x4* m [[buffer(2)]],
              threadgroup Nest* t [[threadgroup(0)]], uint i [[thread_position_in_grid]]) {
  Pair p = d[i], q(d[i]);
  const Pair r = n.pairs[0];
  d[i] = p;
  d[i + 1] = d[i];
  d[i + 2] = Pair(d[i]);
  d[i + 3] = i > 3 ? q : r;
  *t = n;
  Nest w = *t;
  w.pairs[0] = d[0];
  float4x4 a = m[i], b(1.0f);
  m[i] = transpose(a) * b + a * 2.0f;
  float4 column = m[i][1];
  m[i][2] = a * column;
  m[i][2][1] = a[3].x;
}
"""
    result = msl.check(PRELUDE + source)
    assert result and not result.notes, (result.findings, result.notes)


@pytest.mark.parametrize(
    "statement", ["float v = 1; float* p = &v; x[i] = *p;", "float v = 1; float& r = v; x[i] = r;"]
)
def test_private_pointer_without_thread_is_reported(statement):
    result = msl.check(PRELUDE + KERNEL.format(statement))
    assert {f.kind for f in result.findings} == {"missing-address-space"}


@pytest.mark.parametrize(
    "text",
    [
        "constant float scale = 2.0f;",
        "static constant constexpr int width = 3;",
        "constant bool flag [[function_constant(0)]];",
        "template <typename T> T first(thread T* p) { return p[0]; }",
        "struct S { float v; float get() const { return v; } S(float a) : v(a) {} };",
        "struct S { float v; thread S& self() thread { return *this; } };",
        "float product(float a, float b) { float c = a * b; for (int i = 0; i < 3 * 2; i++) c += a * b; return c; }",
        "float f(float x) { auto& r = x; return r; } half f(half x) { return half(f(float(x))); }",
        "enum Mode { plain, causal }; using Pair = vec<float, 2>; typedef device float* Pointer;",
    ],
)
def test_correct_text_is_silent(text):
    result = msl.check(f"{PRELUDE}{text}\n{KERNEL.format('x[i] = 1;')}")
    assert result, "\n".join(map(str, result.findings))


def test_source_that_does_not_compile():
    with pytest.raises(msl.CompileError, match=r"kernel\.metal:3:.*undeclared_name"):
        msl.check(PRELUDE + KERNEL.format("x[i] = undeclared_name;"))
