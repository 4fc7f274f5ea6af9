"""What check finds: each of these kernels has one mistake, made on purpose."""

import pytest
import torch
from torch import Tensor

from torch_mtl4 import msl, testing
from torch_mtl4.custom import check, on_cpu

from . import kernels as examples

LOCAL = {"i": "uint thread_position_in_grid", "t": "uint thread_position_in_threadgroup"}
SUM = """
threadgroup float partial[32];
partial[t] = x[i];
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint n = 16; n > 0; n /= 2) {
    if (t < n) partial[t] += partial[t + n];
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
if (t == 0) out[0] = partial[0];
"""


def sum_reference(x: Tensor) -> Tensor:
    return x.sum(0, keepdim=True)


def same(x: Tensor) -> Tensor:
    return x.clone()


def kernel(body, reference=same, **options):
    return examples.make(["x"], ["out"], body, reference, **options)


def kinds(report):
    return {finding.kind for finding in report.findings}


def test_a_clean_kernel():
    report = kernel(SUM, sum_reference, thread_parameters=LOCAL).check(testing.randn(32))
    assert report and not report.findings and not report.mismatches
    assert report.runs == 3 and str(report).endswith("3 watched runs, compared with the reference in float64: clean")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_layouts_and_dtypes_are_clean(dtype):
    for layout in testing.LAYOUTS:
        x = testing.lay_out(testing.randn(9, 7, dtype=dtype), layout)
        assert examples.transpose().check(x), layout
    assert examples.scale_add().check(testing.randn(40, dtype=dtype), testing.randn(40, dtype=dtype), 0.3)


@pytest.mark.parametrize("barrier", [0, 1])
def test_a_missing_barrier_is_a_race(barrier):
    parts = SUM.split("threadgroup_barrier(mem_flags::mem_threadgroup);")
    kept = ["threadgroup_barrier(mem_flags::mem_threadgroup);", ""]
    first, second = kept if barrier else reversed(kept)
    body = parts[0] + first + parts[1] + second + parts[2]
    report = kernel(body, sum_reference, thread_parameters=LOCAL).check(testing.randn(32))
    assert not report and "race" in kinds(report)


def test_a_finding_has_the_line_of_the_body():
    report = kernel("\n// twice as far\nout[i] = x[2 * i];").check(testing.randn(8))
    (finding,) = report.findings
    assert finding.location.line == 3 and finding.location.path == report.kernel
    assert "    3 | out[i] = x[2 * i];" in str(report)


def test_what_is_never_written_is_found():
    report = kernel("if (i != 3) out[i] = x[i];").check(testing.randn(8))
    assert kinds(report) == {"unwritten-output"}
    assert "1 of 8 elements of output 'out' were never written, the first is [3]" in str(report)
    assert "out: allowed error" in report.mismatches[0] and "at [3] expected" in report.mismatches[0]


def test_a_write_to_an_input_is_found():
    x = testing.randn(8)
    before = x.clone()
    report = kernel("out[i] = x[i];\nx[i] = 0;").check(x)
    assert "write-to-constant" in kinds(report)
    testing.assert_equal(x, before)


def test_a_wrong_kernel_and_a_wrong_reference_differ():
    report = kernel("out[i] = x[i] + (i == 5 ? 0.01f : 0.0f);").check(torch.zeros(8))
    (mismatch,) = report.mismatches
    assert "at [5] expected 0.0, got 0.009" in mismatch and "(1 of 8 elements are wrong)" in mismatch

    def other(x: Tensor) -> Tensor:
        return x + (torch.arange(x.shape[0]) == 2)

    assert "at [2] expected 1.0, got 0.0" in kernel("out[i] = x[i];", other).check(torch.zeros(8)).mismatches[0]


def test_one_rounding_is_allowed_and_two_are_not():
    def third(x: Tensor) -> Tensor:
        return x / 3

    x = testing.randn(64, dtype=torch.bfloat16)
    assert kernel("out[i] = T(float(x[i]) / 3);", third, templates={"x": "T"}).check(x)
    coarse = kernel("out[i] = T(float(T(float(x[i]) / 3)) * 1.02f);", third, templates={"x": "T"})
    assert not coarse.check(x)
    assert coarse.check(x, allowed=1.0)


def test_whole_numbers_are_equal_or_wrong():
    x = testing.randn(50) * 9
    assert examples.split().check(x)
    off = examples.make(
        ["x"], ["nearest", "rest"], "nearest[i] = int(x[i]);\nrest[i] = half(x[i] - rint(x[i]));",
        examples.split_reference,
    )  # fmt: skip
    (mismatch,) = off.check(x).mismatches
    assert "nearest: at" in mismatch


def test_in_place_is_compared_and_leaves_the_inputs_alone():
    total, x = testing.randn(9, 7), testing.randn(9, 7, seed=1)
    before = total.clone()
    assert examples.accumulate().check(total, x)
    testing.assert_equal(total, before)
    wrong = examples.make(
        ["total", "x"], [], "total[p.x, p.y] -= x[p.x, p.y];", examples.add_reference, in_place=("total",),
        grid=lambda x: (x.shape[1], x.shape[0]), threadgroup=(8, 4), thread_parameters=examples.POSITION,
    )  # fmt: skip
    assert "total: allowed error" in wrong.check(total, x).mismatches[0]


def test_a_reference_that_breaks_its_promise():
    def halves(x: Tensor) -> Tensor:
        return x[: x.shape[0] // 2]

    promise = {"output_shapes": lambda x: [x.shape], "output_dtypes": ["x"]}
    bad = kernel("out[i] = x[i];", halves, **promise)
    assert (
        "expected the reference's out as promised, [8] of torch.float32, got [4]"
        in bad.check(torch.ones(8)).mismatches[0]
    )
    with pytest.raises(ValueError, match="expected the reference's out as promised"):
        bad(torch.ones(8))


def test_a_reference_that_does_not_take_float64():
    def picky(x: Tensor) -> Tensor:
        assert x.dtype == torch.float32
        return x.clone()

    report = kernel("out[i] = x[i];", picky).check(torch.ones(8))
    assert report and "the reference itself, which does not take float64 (AssertionError)" in str(report)


def test_layouts_are_tried_where_there_are_cooperative_tensors():
    x = testing.randn(8)
    assert kernel("out[i] = x[i];").check(x, orders=0).runs == 1
    assert kernel("// no cooperative tensors\nout[i] = x[i];").check(x, orders=1).runs == len(check.LAYOUTS) + 1


@pytest.mark.parametrize("way", ["check", "call", "cost"])
def test_a_body_that_does_not_compile(way):
    broken = kernel("out[i] = x[i];\n\nout[i] = nothing(x[i]);", helpers="inline float f(float x) { return x; }")
    with pytest.raises(msl.CompileError) as error, on_cpu("msl"):
        {"check": broken.check, "call": broken, "cost": broken.cost}[way](torch.ones(4))
    assert f"{broken.name}:3:10: error" in str(error.value) and "out[i] = nothing(x[i]);" in str(error.value)


def test_a_helper_that_does_not_compile():
    broken = kernel("out[i] = f(x[i]);", helpers="// a comment\ninline float f(float x) { return y; }")
    with pytest.raises(msl.CompileError, match=rf"{broken.name}.helpers:2:34: error"):
        broken.check(torch.ones(4))


def test_cost_counts():
    x, y = testing.randn(40), testing.randn(40)
    cost = examples.scale_add().cost(x, y, 2.0)
    assert (cost.threads, cost.threadgroups) == (40, 2)
    assert cost.buffers["x"].read == cost.buffers["y"].read == cost.buffers["out"].written == 160
    assert examples.transpose().cost(testing.randn(8, 8)).threadgroup_barriers == 1
    assert examples.transpose().cost(torch.empty(0, 4)).threads == 0


@pytest.mark.parametrize("form", ["handle", "inline"])
@pytest.mark.parametrize("layout", ["dense", "poisoned"])
def test_both_forms_of_the_text_compute_the_same(form, layout):
    from torch_mtl4.custom import runner

    example, x = examples.transpose(), testing.lay_out(testing.randn(9, 7), layout)
    text, out = example.specialize((x,)), torch.empty(7, 9)
    library = runner.library(text, form, checked=True)
    result = runner.dispatch(library, text, {"x": x, "out": out}, example.launch(x), form)
    assert not result.report, result.report
    testing.assert_equal(out, x.mT.contiguous())


def test_what_apples_compiler_would_refuse_is_found():
    report = kernel("const double wide = x[i];\nout[i] = wide;").check(torch.ones(4))
    assert "MSL has no double" in str(report) and not report


def test_inputs_without_values_are_refused():
    for call in (examples.copy().check, examples.copy().cost):
        with pytest.raises(ValueError, match="expected x with values, to be checked, got a tensor without memory"):
            call(torch.ones(4, device="meta"))


GEMM = """
constexpr auto descriptor = matmul2d_descriptor(16, 32, dynamic_length_v<int>, false, true);
matmul2d<descriptor, execution_simdgroups<1>> product;
auto a_tile = a.slice(0, group.y * 16), b_tile = b.slice(0, group.x * 32);
auto sum = product.template get_destination_cooperative_tensor<decltype(a_tile), decltype(b_tile), float>();
#pragma clang loop unroll(full)
for (int n = 0; n < sum.get_capacity(); ++n) sum[n] = 0;
product.run(a_tile, b_tile, sum);
auto out_tile = out.slice(group.x * 32, group.y * 16);
sum.store(out_tile);
"""


def product_reference(a: Tensor, b: Tensor) -> Tensor:
    return a.float() @ b.float().mT


def gemm(body=GEMM):
    return examples.make(
        ["a", "b"], ["out"], body, product_reference, threadgroup=(32,),
        grid=lambda a, b: (32 * -(-b.shape[0] // 32), -(-a.shape[0] // 16)),
        thread_parameters={"group": "uint2 threadgroup_position_in_grid"},
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(16, 32, 32), (20, 40, 24), (3, 5, 7)])
@pytest.mark.parametrize("layout", ["dense", "poisoned"])
def test_matrices_on_tensor_ops_are_clean_in_every_layout(shape, layout):
    m, n, k = shape
    a, b = (testing.lay_out(testing.randn(rows, k, dtype=torch.float16), layout) for rows in (m, n))
    report = gemm().check(a, b)
    assert report, report
    assert report.runs == 5
    cost = gemm().cost(a, b)
    assert cost.products["matmul2d half x half -> float"].operations == -(-m // 16) * -(-n // 32)


def test_a_sum_that_is_not_cleared_is_found():
    body = GEMM.replace("sum[n] = 0", "(void)n")
    body = body.replace("false, true)", "false, true, false, matmul2d_descriptor::mode::multiply_accumulate)")
    assert gemm(body).check(*(testing.randn(32, 32, dtype=torch.float16) for _ in range(2))).mismatches
