"""Costs against numbers that were worked out by hand, and against themselves under everything that must not matter."""

import dataclasses
import importlib.util
import json

import numpy as np
import pytest

from torch_mtl4 import msl

from .conftest import KERNELS, python
from .cost_cases import CASES, checking, counting, flash_attention, numbers, out


def same(cost, expected):
    fields = {name: getattr(cost, name) for name in expected}
    assert fields == expected
    assert list(fields["buffers"]) == list(expected["buffers"])


@pytest.mark.parametrize("name", CASES)
def test_counts_are_those_of_the_source(name):
    case = CASES[name]()
    same(case.dispatch(counting), case.expected())


@pytest.mark.parametrize("name", CASES)
def test_checks_change_no_count_and_find_nothing(name):
    case = CASES[name]()
    same(case.dispatch(checking), case.expected())


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 3}, {"shuffle": True, "seed": 5}])
@pytest.mark.parametrize("name", CASES)
def test_neither_workers_nor_the_order_of_threads_matter(name, options):
    case = CASES[name]()
    same(case.dispatch(counting, **options), case.expected())


@pytest.mark.parametrize("layout", ["m5", "pre_m5", "scrambled"])
@pytest.mark.parametrize("name", ["tensor_matmul", "cooperative_matmul", "scaled_matmul"])
def test_layouts_of_cooperative_tensors_do_not_matter(name, layout):
    case = CASES[name]()
    same(case.dispatch(counting, layout=layout), case.expected())


@pytest.mark.parametrize("layout", ["pre_m5", "scrambled"])
def test_a_kernel_that_asks_for_the_layout_costs_what_it_does_then(layout):
    case = flash_attention(layout)
    same(case.dispatch(counting), case.expected())


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="the second compiler is the ziglang wheel")
def test_another_compiler_counts_the_same():
    result = python("-m", "tests.msl.cost_cases", TORCH_MTL4_MSL_CXX="ziglang")
    assert result.returncode == 0, result.stderr
    costs = json.loads(result.stdout)
    assert list(costs) == list(CASES)
    for name, data in costs.items():
        same(msl.Cost.from_dict(data), CASES[name]().expected())


def test_threads_and_threadgroups_of_a_grid_that_is_cut():
    x = numbers(100)
    lib = counting("arguments.metal")
    lib.kernel("copy").dispatch(threads=70, threadgroup=32, buffers=[x, out(100), np.uint32(100)])
    assert (lib.cost.threadgroups, lib.cost.threads) == (3, 70)
    assert lib.cost.device_read == lib.cost.device_written == 4 * 70
    assert lib.cost.constant_read == 4 * 70
    lib.kernel("copy").dispatch(threads=0, threadgroup=32, buffers=[x, out(100), np.uint32(100)])
    assert (lib.cost.threads, lib.cost.rows()) == (0, {})


def test_arguments_that_share_memory_are_one_line():
    x = numbers(200)
    result = counting("arguments.metal").kernel("copy").dispatch(1, 100, [x[:150], x[50:], np.uint32(100)])
    assert list(result.cost.buffers) == ["x, y", "n"]
    assert result.cost.buffers["x, y"] == msl.Traffic("device", 400, 400, 400, 400)
    both = msl.Buffer(x)
    result = counting("arguments.metal").kernel("copy").dispatch(1, 100, [both, (both, 400), np.uint32(100)])
    assert result.cost.buffers["x, y"] == msl.Traffic("device", 400, 400, 400, 400)


def test_memory_that_is_not_bound_has_a_line_when_it_is_read():
    result = counting("cost.metal").kernel("strided").dispatch(1, 32, {1: out(32), 2: np.uint32(1), 0: None})
    assert result.cost.buffers["(unbound)"] == msl.Traffic("device", 128, 0, 128, 0)


def test_persistent_buffers_are_counted_in_each_dispatch_anew():
    x, y = msl.Buffer(numbers(64)), msl.Buffer(4 * 64)
    kernel = counting("cost.metal").kernel("strided")
    for _ in range(2):
        cost = kernel.dispatch(1, 32, [x, y, np.uint32(2)]).cost
        assert cost.buffers["x"] == msl.Traffic("device", 128, 0, 128, 0)
        assert cost.buffers["y"] == msl.Traffic("device", 0, 128, 0, 128)


def test_many_bytes_across_the_words_of_the_map():
    """Rows of 200 bytes of a tensor: an access from a byte to another inside of words of 64."""
    m, n, k = 64, 32, 100
    a, b = numbers(m, k, dtype=np.float16), numbers(k, n, dtype=np.float16)
    lib = counting("c_tensorops_matmul.metal")
    lib.kernel("matmul_handle").dispatch((1, 1), 128, [a[:, 3:], b[3:], out(m, n)])
    assert lib.cost.buffers["matrixA"] == msl.Traffic("device", 2 * m * 97, 0, 2 * m * 97, 0)
    assert lib.cost.buffers["matrixB"] == msl.Traffic("device", 2 * n * 97, 0, 2 * n * 97, 0)


@pytest.mark.parametrize("checked", [False, True])
def test_a_library_that_does_not_count_says_so(checked):
    lib = msl.compile(KERNELS / "arguments.metal", checked=checked)
    result = lib.kernel("copy").dispatch(1, 32, [numbers(32), out(32), np.uint32(32)])
    assert result.cost is None
    with pytest.raises(msl.MslError, match="cost: expected a library compiled with count=True"):
        print(lib.cost)


def test_no_cost_before_a_dispatch_or_after_a_crash():
    lib = msl.compile(KERNELS / "cost.metal", count=True, checked=False, only="^strided$")
    with pytest.raises(msl.MslError, match="cost: expected a dispatch before"):
        print(lib.cost)
    lib.kernel("strided").dispatch(1, 32, [numbers(32), out(32), np.uint32(1)])
    assert lib.cost.device_read == 128
    with pytest.raises(msl.KernelFaultError, match="guard page"):
        lib.kernel("strided").dispatch(1, 32, [numbers(32), out(32), np.uint32(5000)])
    with pytest.raises(msl.MslError, match="one that did not crash"):
        print(lib.cost)


def test_checks_still_find_bugs_while_counting():
    lib = msl.compile(KERNELS / "bugs.metal", count=True, only="^missing_barrier$")
    x = np.arange(128, dtype=np.float32)
    result = lib.kernel("missing_barrier").dispatch(4, 128, [x, out(4), np.uint32(100)])
    assert "race" in result.report.kinds
    assert result.cost.device_read > 0


def test_a_cost_as_text_and_as_json():
    case = CASES["row_sum"]()
    cost = case.dispatch(counting)
    assert msl.Cost.from_dict(json.loads(json.dumps(cost.to_dict()))) == cost
    assert cost.to_dict()["totals"]["device_read"] == 12000
    lines = [line.split() for line in str(cost).splitlines()]
    assert lines[0] == ["row_sum:", "3", "threadgroups,", "768", "threads"]
    assert ["device", "bytes", "read", "12,000"] in lines
    assert ["simd_sum", "27"] in lines
    assert not any("atomic" in word for line in lines for word in line)
    with pytest.raises(ValueError, match=r"Cost.from_dict: expected what Cost.to_dict gives"):
        msl.Cost.from_dict({"kernel": "row_sum"})


def test_costs_compare():
    """The same product: without threadgroup memory a tile of 16 x 16 reads 16 times the bytes."""
    tiled = CASES["tiled_matmul"]().dispatch(counting)
    twice = dataclasses.replace(tiled, threadgroup_barriers=2 * tiled.threadgroup_barriers, threadgroup_read=0)
    rows = twice.compare(tiled)
    assert rows["threadgroup barriers"] == (48, 24)
    assert rows["threadgroup bytes read"] == (0, tiled.threadgroup_read)
    assert rows["  A read"] == (2 * 4 * 40 * 20,) * 2
    assert tiled.per(40 * 24)["  C written"] == 4
    with pytest.raises(ValueError, match=r"Cost.per: expected at least one output, got 0"):
        tiled.per(0)


@pytest.mark.parametrize("checked", [False, True])
def test_bfloats_are_rounded_the_same_in_a_build_that_counts(checked):
    """A branch, here the checks' own, between a function's bfloat and where it goes."""
    source = """
        #include <metal_stdlib>
        using namespace metal;
        kernel void rounded(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
          threadgroup bfloat tile[8];
          tile[i] = bfloat(x[i]);
          out[i] = float(tile[i]);
        }"""
    x, out = np.array([-2.5, -1, -3, 0.5, 7, -0.0, -28, 1], np.float32), np.zeros(8, np.float32)
    msl.compile(source, count=True, checked=checked).kernel("rounded").dispatch(1, 8, [x, msl.Output(out)])
    np.testing.assert_array_equal(out, x)
