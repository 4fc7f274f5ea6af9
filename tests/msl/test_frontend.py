"""The rewriter: bindings, threadgroup variables, address-space overloads, function constants, instantiations."""

import numpy as np
import pytest

from torch_mtl4 import msl
from torch_mtl4.msl.frontend import BUFFER, THREADGROUP, TokenStream, count_barriers, lex, translate
from torch_mtl4.msl.frontend.constants import constant_index, constant_literal

from .conftest import KERNELS

PRELUDE = "#include <metal_stdlib>\nusing namespace metal;\n"


def rewritten(text, constants=None, **options):
    return translate(text, constants or {}, **options)


def run(text, out, *, kernel="k", threads=1, constants=None, buffers=()):
    lib = msl.compile(PRELUDE + text, constants=constants)
    report = lib.kernel(kernel).dispatch(1, threads, [msl.Output(out), *buffers]).report
    assert not report, str(report)
    return out


def test_lines_are_kept():
    text = (KERNELS / "d_flash_attention.metal").read_text()
    body = rewritten(text)[0].split("#define METAL_INTERNAL\n")[1]
    assert body.rstrip("\n").count("\n") == text.rstrip("\n").count("\n")


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.metal")), ids=lambda path: path.stem)
def test_no_threadgroup_variable_survives(path):
    body = rewritten(path.read_text())[0]
    stream = TokenStream(lex(body))
    for i, token in enumerate(stream.tokens):
        if token.text == "threadgroup" and token.kind == "word" and stream.at(stream.prev(i)) in ("{", ";"):
            statement = stream.text(i, next(k for k in range(i, len(stream)) if stream.at(k) in (";", "{", "(")))
            assert "*" in statement or "&" in statement, statement


def test_parameters():
    text = """kernel void k(device const float* x, constant uint& n [[buffer(5)]], device atomic_uint* h [[buffer(1)]],
        const device packed_half4 *p, threadgroup float* s, threadgroup half* t [[threadgroup(3)]],
        constant float* c [[buffer(7), function_constant(has_c)]], uint2 i [[thread_position_in_grid]]) {}"""
    (kernel,) = rewritten(text)[1].kernels
    by_name = {p.name: p for p in kernel.parameters}
    assert [(n, by_name[n].kind, by_name[n].index) for n in "xnhp"] == [
        ("x", BUFFER, "0"),
        ("n", BUFFER, "5"),
        ("h", BUFFER, "1"),
        ("p", BUFFER, "2"),
    ]
    assert (by_name["s"].kind, by_name["s"].index, by_name["t"].index) == (THREADGROUP, "0", "3")
    assert [n for n in "xnhpc" if by_name[n].constant] == ["x", "n", "p", "c"]
    assert [by_name[n].element for n in "xnhp"] == ["float", "uint", "atomic_uint", "packed_half4"]
    assert (by_name["n"].indirect, by_name["x"].indirect, by_name["c"].condition) == ("&", "*", "has_c")


@pytest.mark.parametrize(
    ("declaration", "expression", "value"),
    [
        ("threadgroup float a[4];", "a[1]", 7),
        ("threadgroup float a[2][3], b[2];", "a[1][2] + b[0]", 14),
        ("threadgroup alignas(16) float a[4];", "a[3]", 7),
        ("alignas(16) threadgroup half a[4];", "a[3]", 7),
        ("threadgroup vec<float, 2> a[2];", "a[1].y", 7),
        ("threadgroup metal::float4 a;", "a.w", 7),
        ("threadgroup array<float, 3> a;", "a[2]", 7),
        ("threadgroup float a = 3;", "a", 7),
    ],
)
def test_threadgroup_variables(declaration, expression, value):
    terms = expression.split(" + ")
    stores = "".join(f"{term} = 7; " for term in terms)
    body = f"{declaration} {stores} o[0] = {expression};"
    out = run(f"kernel void k(device float* o [[buffer(0)]]) {{ {body} }}", np.zeros(1, np.float32))
    assert out[0] == value


def test_threadgroup_variable_that_is_not_understood():
    with pytest.raises(msl.MslSyntaxError, match="threadgroup variable not understood: threadgroup float a"):
        msl.compile(f"{PRELUDE}kernel void k(device float* o [[buffer(0)]]) {{ threadgroup float a[4] b; }}")


def test_overloads_that_differ_in_address_spaces_only():
    text = """
    float first(device const float* p) { return p[0]; }
    float first(constant float* p) { return p[0]; }
    float first(threadgroup const float* p) { return p[0]; }
    struct Pair {
        float a;
        Pair(float x) : a(x) {}
        float get() const device { return a; }
        float get() const { return a; }
    };
    template <typename T> struct Space { constexpr static constant int value = 0; };
    template <typename T> struct Space<device T*> { constexpr static constant int value = 1; };
    template <typename T> struct Space<threadgroup T*> { constexpr static constant int value = 1; };
    kernel void k(device float* o [[buffer(0)]], constant float* c [[buffer(1)]]) {
        threadgroup float t[1]; t[0] = 2; Pair p(4);
        o[0] = first(c) + first(t) + p.get() + Space<device float*>::value;
    }"""
    assert run(text, np.zeros(1, np.float32), buffers=[np.float32(10)])[0] == 17


def test_functions_of_two_namespaces_are_two():
    text = """
    namespace a { inline float first(device const float* p) { return p[0]; } }
    namespace b { inline float first(device const float* p) { return p[0] + 1; } }
    kernel void k(device float* o [[buffer(0)]], device const float* x [[buffer(1)]]) {
        o[0] = 10 * a::first(x) + b::first(x);
    }"""
    assert run(text, np.zeros(1, np.float32), buffers=[np.full(1, 3, np.float32)])[0] == 34


def test_function_constants():
    text = """
    constant bool flag [[function_constant(0)]];
    constant float2 both [[function_constant(2)]];
    constant uint width [[function_constant(300 + 1)]];
    constant uint twice = width * 2;
    constant bool given = is_function_constant_defined(width);
    kernel void k(device float* o [[buffer(0)]]) {
        o[0] = flag; o[1] = both.y; o[2] = twice; o[3] = given; o[4] = is_function_constant_defined(flag);
    }"""
    constants = {"flag": True, 2: (1.5, 2.5), 301: 21}
    assert run(text, np.zeros(5, np.float32), constants=constants).tolist() == [1, 2.5, 42, 1, 1]
    assert run(text, np.zeros(5, np.float32)).tolist() == [0, 0, 0, 0, 0]


def test_instantiations():
    text = """
    template <typename T, int N> [[kernel]] void fill(device T* o [[buffer(0)]], uint i [[thread_position_in_grid]]) {
        o[i] = T(N);
    }
    template [[host_name("fill_half_3")]] [[kernel]] decltype(fill<half, 3>) fill<half, 3>;
    template [[host_name("fill_" "float_4")]] kernel void fill<float, 4>(device float* o [[buffer(0)]], uint i);
    """
    assert run(text, np.zeros(4, np.float16), kernel="fill_half_3", threads=4).tolist() == [3] * 4
    assert run(text, np.zeros(4, np.float32), kernel="fill_float_4", threads=4).tolist() == [4] * 4
    assert set(msl.compile(PRELUDE + text, only="half").kernels) == {"fill_half_3"}


def test_literals_are_single_precision():
    sizes = "sizeof(1.5) + sizeof(1e3) + sizeof(.5f) + sizeof(1.5h)"
    text = f"kernel void k(device float* o [[buffer(0)]]) {{ o[0] = {sizes}; }}"
    assert run(text, np.zeros(1, np.float32))[0] == 14


def test_barriers_are_counted_and_removed():
    text = "void f() { threadgroup_barrier(x); simdgroup_barrier (y); g(threadgroup_barrier); }"
    assert count_barriers(text) == 2
    assert "simdgroup_barrier" not in rewritten(text, without_barrier=1)[0]


@pytest.mark.parametrize(
    ("type_", "value", "literal"),
    [
        ("bool", True, "(bool)(1)"),
        ("float", float("inf"), "(float)(__builtin_inff())"),
        ("float", 0.1, "(float)(0.1f)"),
        ("ulong", 2**64 - 1, "(ulong)(18446744073709551615ul)"),
        ("int2", (1, np.int32(2)), "int2(1, 2)"),
    ],
)
def test_constant_literals(type_, value, literal):
    assert constant_literal(type_, value) == literal


def test_wrong_constants():
    assert constant_index("300 + 2 * 4") == 308
    with pytest.raises(msl.MslSyntaxError, match="index of a function constant: expected integers and"):
        constant_index("N + 1")
    with pytest.raises(
        TypeError, match="compile: expected function constants to be numbers or tuples of them, got 'x'"
    ):
        constant_literal("int", "x")


def test_a_kernel_may_have_the_name_of_a_function_of_metal():
    text = "kernel void cross(device float* out) { out[0] = length(metal::cross(float3(1, 0, 0), float3(0, 2, 0))); }"
    assert run(text, np.zeros(1, np.float32), kernel="cross") == 2
    text = "namespace mine { kernel void cross(device float* out) { out[0] = 3; } }"
    assert run(text, np.zeros(1, np.float32), kernel="cross") == 3
