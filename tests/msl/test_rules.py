"""What Apple's compiler refuses is refused with the rule's text; what it demands at run time is reported."""

import functools
import re

import numpy as np
import pytest

from torch_mtl4 import msl
from torch_mtl4.msl import toolchain
from torch_mtl4.msl.compile import preprocessed
from torch_mtl4.msl.frontend import translate
from torch_mtl4.msl.tiers import find_tier

from .matmul_table import ELEMENTS, ROWS

HEAD = """
#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
template <typename T> using in_device = tensor<device T, dextents<int, 2>, tensor_inline>;
template <typename T> in_device<T> make(device uchar* p) {
    return in_device<T>((typename in_device<T>::data_handle_type)p, dextents<int, 2>(64, 64));
}
"""
HALF = """
    auto a = make<half>(p); auto b = make<half>(p); auto c = make<float>(p);
"""


def kernel(body):
    return f"{HEAD}\nkernel void k(device uchar* p [[buffer(0)]]) {{\n{body}\n}}\n"


def op(m=16, n=32, k=32, tl=0, tr=0, scope="execution_simdgroup", mode="multiply"):
    return (
        f"    constexpr auto d = matmul2d_descriptor({m}, {n}, {k}, {tl}, {tr}, false, "
        f"matmul2d_descriptor::mode::{mode}); matmul2d<d, {scope}> op;\n"
    )


INPUTS = "auto l = op.get_left_input_cooperative_tensor<half, half, float>();"
RIGHT = "auto r = op.get_right_input_cooperative_tensor<half, half, float>();"
DESTINATION = "auto s = op.get_destination_cooperative_tensor<decltype(a), decltype(b), float>();"
SCALES = "tensor_blockwise<tensor_plane_scales, device metal_fp8_ue8m0_format, 32, 1>"


def scaled(name, element="metal_fp8_e4m3_format"):
    tensor = f"tensor<device {element}, dextents<int, 2>, tensor_inline, {SCALES}>"
    return f"{tensor} {name}(p, dextents<int, 2>(64, 64), array<int, 2>{{1, 64}}, {SCALES}(p));"


def operands(types):
    return "".join(f"auto {name} = make<{type_name}>(p);" for name, type_name in zip("abc", types, strict=True))


def check(source, tier="macos27"):
    """(accepted, diagnostics) of the run build, without generating code."""
    text, _ = preprocessed(source, "kernel.metal", (), None, tier)
    cpp, _ = translate(text, {})
    flags = [*toolchain.kernel_flags(False), *find_tier(tier).header_flags()]
    return toolchain.check_syntax(cpp, "msl.h", flags)


@functools.cache
def errors_by_line(source):
    """The diagnostics of a source with many mistakes: the line of the kernel to the errors that arose from it."""
    _, text = check(source)
    found = {}
    for error in re.split(r"\n(?=\S[^\n]* error: )", "\n" + text):
        for line in re.findall(r"^kernel\.metal:(\d+):", error, re.M):
            found.setdefault(int(line), []).append(error)
    return found


def kernels(bodies):
    """A source with one kernel for each body, and the line on which each of them stands."""
    lines = HEAD.splitlines()
    first = len(lines) + 1
    lines += [
        f"kernel void k{i}(device uchar* p [[buffer(0)]]) {{ {' '.join(b.split())} }}" for i, b in enumerate(bodies)
    ]
    return "\n".join(lines) + "\n", {body: first + i for i, body in enumerate(bodies)}


def refusal(bodies, body):
    source, lines = kernels(bodies)
    return "\n".join(errors_by_line(source).get(lines[body], []))


REFUSED = {
    "neither M nor N is a multiple of 16": (
        HALF + op(8, 8) + "op.run(a, b, c);",
        "at least one of M and N must be a multiple of 16",
    ),
    "an odd output of a thread": (
        HALF + op(3, 8, scope="execution_thread") + "op.run(a, b, c);",
        "with execution_thread M and N must be 1, 2, 4 or a multiple of 8",
    ),
    "a scope that is not one": (
        HALF + op(scope="execution_threads<2>") + "op.run(a, b, c);",
        "of single threads only execution_thread is a scope",
    ),
    "a scope of dynamic size": (
        HALF + op(scope="execution_dsimdgroups") + "op.run(a, b, c);",
        "the scope is execution_thread, execution_simdgroup or execution_simdgroups<N>",
    ),
    "an input from registers in several simdgroups": (
        HALF + op(scope="execution_simdgroups<4>") + INPUTS,
        "cooperative inputs need the scope execution_simdgroup",
    ),
    "an input from registers and a dynamic K": (
        HALF + op(k="dynamic_length_v<int>") + INPUTS,
        "K must be static when an input is a cooperative tensor",
    ),
    "two inputs from registers, M": (
        HALF + op(64, 32) + f"{INPUTS} {RIGHT} {DESTINATION} op.run(l, r, s);",
        "with two cooperative inputs M must be 16 or 32",
    ),
    "two inputs from registers, N": (
        HALF + op(16, 64) + f"{INPUTS} {RIGHT} {DESTINATION} op.run(l, r, s);",
        "with two cooperative inputs N must be 16 or 32",
    ),
    "two inputs from registers, all small": (
        HALF + op(16, 16, 16) + f"{INPUTS} {RIGHT} {DESTINATION} op.run(l, r, s);",
        "at least one of M, N and K must be 32",
    ),
    "a left operand with scales that is transposed": (
        scaled("a") + scaled("b") + "auto c = make<float>(p);" + op(tl=1, tr=1) + "op.run(a, b, c);",
        "a left operand with scales must not be transposed",
    ),
    "a right operand with scales that is not transposed": (
        "auto a = make<half>(p); auto c = make<float>(p);" + scaled("b") + op() + "op.run(a, b, c);",
        "a right operand with scales must be transposed",
    ),
    "scales of half": (scaled("a", "half"), "scales need elements of at most 8 bits"),
    "scales in another format": (
        "tensor_blockwise<tensor_plane_scales, device metal_fp8_e4m3_format, 32, 1> s(p);",
        "scales are metal_fp8_ue8m0_format",
    ),
    "blocks of 16": (
        "tensor_blockwise<tensor_plane_scales, device metal_fp8_ue8m0_format, 16, 1> s(p);",
        "the block is 32 along the first dimension and 1 along the others",
    ),
    "UE8M0 as data": (
        "auto a = make<metal_fp8_ue8m0_format>(p);",
        "metal_fp8_ue8m0_format is for scales, not for data",
    ),
    "a temporary": (HALF + op() + "op.run(a, b.slice(0, 0), c);", "run takes variables that are not const"),
    "a const operand": (HALF + op() + "const auto e = b; op.run(a, e, c);", "run takes variables that are not const"),
    "a const element type": (
        HALF + op() + "auto e = make<const half>(p); op.run(a, e, c);",
        "half x const half -> float is not in the table of element types",
    ),
    "char": (
        "auto a = make<char>(p); auto b = make<int8_t>(p); auto c = make<int>(p);" + op() + "op.run(a, b, c);",
        "char (write int8_t) x int8_t -> int32_t is not in the table of element types",
    ),
    "extents of another index type": (
        HALF
        + op()
        + "tensor<device half, dextents<long, 2>, tensor_inline> e((device half*)p, dextents<long, 2>(64, 64));"
        "op.run(a, e, c);",
        "the extents of operands must have index type int",
    ),
    "three dimensions": (
        HALF
        + op()
        + "tensor<device half, dextents<int, 3>, tensor_inline> e((device half*)p, dextents<int, 3>(64, 64, 2));"
        "op.run(a, e, c);",
        "operands have rank 1 or 2",
    ),
    "element types where operand types belong": (
        HALF + op() + "auto s = op.get_destination_cooperative_tensor<half, half, float>();",
        "the first two template arguments of this function are the types of the operands",
    ),
    "a converted input of another type": (
        HALF + op(16, 32, 32) + DESTINATION + "op.is_compatible_as_left_input<half, half, float>(s);",
        "the source must have the type of the input",
    ),
    "a converted input of another shape": (
        HALF + op(16, 32, 16) + DESTINATION + "op.get_left_input_cooperative_tensor<float, half, float>(s);",
        "M x N of the source must be the shape of the input",
    ),
    "a converted input that is transposed": (
        HALF + op(32, 32, 32, tl=1) + DESTINATION + "op.get_left_input_cooperative_tensor<float, half, float>(s);",
        "the side that takes a converted input must not be transposed",
    ),
    "a converted input that is no destination": (
        HALF + op(16, 16, 16) + f"{INPUTS} op.get_left_input_cooperative_tensor<half, half, float>(l);",
        "an input is converted from the destination of a matmul2d",
    ),
    "a reduction over several simdgroups": (
        HALF
        + op(scope="execution_simdgroups<2>")
        + DESTINATION
        + "auto r = op.get_row_reduction_destination_cooperative_tensor<decltype(a), decltype(b), float>();"
        "reduce_rows(s, r);",
        "reduce: the scope is one simdgroup",
    ),
    "a reduction into another type": (
        HALF
        + op()
        + DESTINATION
        + "auto r = op.get_row_reduction_destination_cooperative_tensor<decltype(a), decltype(b), half>();"
        "reduce_rows(s, r);",
        "source and destination must have the same element type",
    ),
    "columns into a tensor of rows": (
        HALF
        + op()
        + DESTINATION
        + "auto r = op.get_row_reduction_destination_cooperative_tensor<decltype(a), decltype(b), float>();"
        "reduce_columns(s, r);",
        "the destination comes from get_row_reduction_destination_cooperative_tensor for reduce_rows",
    ),
    "a store that converts": (
        HALF + op() + DESTINATION + "s.store(a);",
        "load and store need a tensor of the same element type",
    ),
    "get_mask, which does not exist": (HALF + op() + DESTINATION + "s.get_mask(0);", "no member named 'get_mask'"),
    "static_slice, which does not exist": (HALF + "a.static_slice<16, 16>(0, 0);", "no member named 'static_slice'"),
    "tensor_offset as a descriptor": (
        "tensor<device half, dextents<int, 2>, tensor_offset> t;",
        "tensor_offset is a tag behind it",
    ),
    "execution_threadgroup, which does not exist": (
        HALF + op(scope="execution_threadgroup") + "op.run(a, b, c);",
        "execution_threadgroup",
    ),
    "elements of a format by index": (
        "auto a = make<metal_fp8_e4m3_format>(p); a[0, 0];",
        "elements of a format have no address",
    ),
    "threadgroup memory beyond the limit": (
        "threadgroup float big[9000]; big[0] = 1; p[0] = big[0];",
        "threadgroup memory is limited to 32768 bytes",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_illegal_code_is_refused_with_the_rule(case):
    body, text = REFUSED[case]
    assert text in refusal(tuple(body for body, _ in REFUSED.values()), body)


ABSENT = [
    ("bfloat", "metal_fp8_e4m3_format", "float"),
    ("float", "metal_fp8_e5m2_format", "float"),
    ("metal_fp8_e4m3_format", "half", "float"),
    ("metal_fp8_e4m3_format", "metal_fp8_e5m2_format", "float"),
    ("metal_fp8_e4m3_format", "metal_fp4_e2m1_format", "half"),
    ("half", "metal_fp8_e4m3_format", "bfloat"),
    ("int8_t", "uint8_t", "int32_t"),
    ("int4b_format", "int4b_format", "int32_t"),
    ("int8_t", "half", "int32_t"),
]


def product_of(types):
    return operands(types) + op(tr=1) + "op.run(a, b, c);"


@pytest.mark.parametrize("types", ABSENT, ids="-".join)
def test_types_that_do_not_multiply(types):
    assert types not in ROWS
    left, right, destination = types
    expected = f"matmul2d: {left} x {right} -> {destination} is not in the table of element types"
    assert expected in refusal(tuple(map(product_of, ABSENT)), product_of(types))


def test_the_whole_table():
    triples = [(a, b, c) for a in ELEMENTS for b in ELEMENTS for c in ELEMENTS]
    numbers = ", ".join(f"msl::types_since<{', '.join(t)}>()" for t in triples)
    body = f"constexpr short since[] = {{{numbers}}}; for (int i = 0; i < {len(triples)}; i++) out[i] = since[i];"
    lib = msl.compile(f"{HEAD}\nkernel void table(device int* out [[buffer(0)]]) {{ {body} }}", checked=False)
    out = np.zeros(len(triples), np.int32)
    lib.kernel("table").dispatch(1, 1, [out])
    assert {t: since for t, since in zip(triples, out.tolist(), strict=True) if since} == ROWS


@pytest.mark.parametrize(
    ("types", "tier", "needs"),
    [
        (("bfloat", "bfloat", "float"), "macos26.0", "macOS 26.1"),
        (("half", "uint8_t", "half"), "macos26.2", "macOS 26.4"),
        (("bfloat", "half", "half"), "macos26.0", "macOS 26.1"),
    ],
)
def test_types_that_need_a_later_system(types, tier, needs):
    left, right, destination = types
    source = kernel(product_of(types))
    accepted, diagnostics = check(source, tier)
    assert not accepted
    assert f"matmul2d: {left} x {right} -> {destination} needs {needs}; the tier is {tier} with MSL 4.0" in diagnostics
    assert check(source)[0]


def test_the_rule_about_multiples_of_16_is_as_old_as_its_headers():
    source = kernel(HALF + op(8, 8) + "op.run(a, b, c);")
    assert check(source, "macos26.2")[0]
    assert not check(source, "macos26.4")[0]


REPORTED = [
    (
        "in_device<half> e((device half*)p, dextents<int, 2>(64, 32), array<int, 2>{2, 128}); op.run(a, e, c);",
        "tensor-stride",
        "the right operand has stride 2 in its first dimension",
    ),
    (
        "in_device<metal_fp8_e4m3_format> e(p, dextents<int, 2>(64, 64)); op.run(a, e, c);",
        "tensor-alignment",
        "rows 64 elements of 8 bits apart",
    ),
    ("auto e = a.slice(48, 0); op.run(e, b, c);", "tensor-extent", "K is 32, static, and the left operand has 16"),
    (
        "auto e = b.slice<32, 32>(48, 0); op.run(a, e, c);",
        "tensor-extent",
        "static size 32 in dimension 0 where the tensor has 16",
    ),
    ("auto e = a.slice(-1, 0); op.run(e, b, c);", "tensor-slice", "origin -1 of dimension 0 is negative"),
    (
        "in_device<half> e((device half*)p, dextents<int, 2>(64, 1 << 30)); auto f = e.slice(0, 1 << 25);"
        "p[0] = f.get_extent(0);",
        "tensor-slice",
        "offsets of 2 GiB or more wrap",
    ),
    (
        scaled("e") + "auto f = e.slice(16, 0); p[0] = f.get_extent(0);",
        "tensor-slice",
        "inside a block of 32 that shares a scale",
    ),
    (
        "in_device<metal_fp4_e2m1_format> e(p, dextents<int, 2>(256, 4)); auto f = e.slice(3, 0);"
        "p[0] = f.get_extent(0);",
        "tensor-slice",
        "begins inside a byte, at element 3",
    ),
]


@pytest.fixture(scope="module")
def mistakes():
    source, _ = kernels([HALF + op() + body for body, *_ in REPORTED])
    return msl.compile(source)


@pytest.mark.parametrize("case", range(len(REPORTED)))
def test_what_is_known_only_at_run_time_is_reported(mistakes, case):
    _, kind, text = REPORTED[case]
    memory = np.zeros(64 * 64 * 4 + 8192, np.uint8)
    report = mistakes.kernel(f"k{case}").dispatch(1, 32, [memory], device_races=False).report
    found = [finding.message for finding in report if finding.kind == kind]
    assert found and text in found[0], str(report)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"extents": (48, 4), "format": "fp8_e4m3"}, "first extent that 32 divides for fp8_e4m3, got 48"),
        (
            {"extents": (64, 4), "format": "fp8_e4m3"},
            r"strides of fp8_e4m3 that 128 divides \(128 bytes\), got \(1, 64\)",
        ),
        ({"extents": (256, 4), "strides": (1, 128), "format": "int4"}, "strides of int4 that 256 divides"),
        ({"extents": (256, 4), "format": "int4", "offset": 64}, "offset that 128 divides for int4, got 64"),
        ({"extents": (256, 4), "format": "int3"}, "format to be one of"),
        ({"extents": (33, 4), "scales": np.zeros(8, np.uint8)}, "first extent that 32 divides with scales"),
        ({"extents": (4, 4), "strides": (1,)}, "as many strides"),
    ],
)
def test_tensors_that_the_host_cannot_make(arguments, message):
    with pytest.raises(ValueError, match=message):
        msl.Tensor(np.zeros(2048, np.uint8), **arguments)
