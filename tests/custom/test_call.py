"""Calls on CPU tensors, by the reference and by the text: layouts, dtypes, results, in place, gradients, tracing."""

import copy
import pickle
import threading

import pytest
import torch
from torch import Tensor

import torch_mtl4
from torch_mtl4 import testing
from torch_mtl4.custom import kernels, on_cpu
from torch_mtl4.custom.signature import MSL_TYPES

from . import kernels as examples

WAYS = pytest.mark.parametrize("way", ["reference", "msl"])
FLOATS = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)


@WAYS
@FLOATS
@pytest.mark.parametrize("layout", testing.LAYOUTS)
def test_any_layout(way, dtype, layout):
    x, y = (testing.lay_out(testing.randn(70, dtype=dtype, seed=seed), layout) for seed in (1, 2))
    with on_cpu(way):
        got = examples.scale_add()(x, y, 0.5)
    assert got.is_contiguous() and got.dtype == dtype
    truth = x.double() + 0.5 * y.double()
    testing.assert_close(got, truth, testing.allowed_error(testing.error_of(x + 0.5 * y, truth), truth, dtype))


@WAYS
@pytest.mark.parametrize("layout", testing.LAYOUTS)
@pytest.mark.parametrize("shape", [(8, 8), (9, 7), (1, 17), (16, 3)])
def test_edge_groups_are_smaller(way, layout, shape):
    x = testing.lay_out(testing.randn(*shape), layout)
    with on_cpu(way):
        testing.assert_equal(examples.transpose()(x), x.mT.contiguous())


@WAYS
def test_expanded_operands(way):
    x, y = torch.randn(1).expand(40), torch.randn(40)
    with on_cpu(way):
        testing.assert_equal(examples.scale_add()(x, y, 2.0), x + 2.0 * y)
        row = torch.randn(6).expand(5, 6)
        testing.assert_equal(examples.transpose()(row), row.mT.contiguous())


@WAYS
@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_nothing_to_do(way, shape):
    with on_cpu(way):
        assert examples.transpose()(torch.randn(shape)).shape == (shape[1], shape[0])
        assert examples.accumulate()(torch.randn(shape), torch.randn(shape)) is None


@WAYS
def test_several_results_of_several_dtypes(way):
    x = testing.randn(50) * 9
    with on_cpu(way):
        got = examples.split()(x)
    for mine, want in zip(got, examples.split_reference(x), strict=True):
        testing.assert_equal(mine, want)


@pytest.mark.parametrize("dtype", [d for d in MSL_TYPES if not d.is_floating_point], ids=str)
def test_whole_numbers(dtype):
    info = torch.iinfo(dtype)
    x = torch.tensor([info.min, info.max, 0, 1, info.max // 3], dtype=torch.int64).to(dtype)
    with on_cpu("msl"):
        testing.assert_equal(examples.copy()(x), x)


@WAYS
@pytest.mark.parametrize("layout", testing.LAYOUTS)
def test_in_place(way, layout):
    total, x = testing.lay_out(testing.randn(9, 7), layout), testing.randn(9, 7, seed=1)
    want, version = total + x, total._version
    with on_cpu(way):
        assert examples.accumulate()(total, x) is None
    testing.assert_equal(total, want)
    assert total._version > version


def test_in_place_refuses_shared_memory_and_gradients():
    x = torch.randn(4, 6)
    with pytest.raises(ValueError, match=r"expected total, .* without elements that overlap, got sizes \[4, 6\]"):
        examples.accumulate()(torch.randn(6).expand(4, 6), x)
    with pytest.raises(ValueError, match=r"expected total, .* in memory of its own, got memory that x has, too"):
        examples.accumulate()(x, x)
    for overlapping in (torch.randn(30).as_strided((4, 6), (5, 1)), torch.randn(30).as_strided((4, 6), (2, 2))):
        with pytest.raises(ValueError, match="without elements that overlap"):
            examples.accumulate()(overlapping, x)
    apart = torch.randn(40).as_strided((4, 6), (1, 5))
    want = apart + x
    examples.accumulate()(apart, x)
    testing.assert_equal(apart, want)
    big = torch.randn(8, 6)
    with pytest.raises(ValueError, match="memory that x has, too"):
        examples.accumulate()(big[1:5], big[4:])
    examples.accumulate()(big[:4], big[4:])
    for total, other in ((x, x.clone().requires_grad_()), (x.clone().requires_grad_() * 1, x)):
        with pytest.raises(NotImplementedError, match="that needs no gradient, since the kernel works in place"):
            examples.accumulate()(total, other)
        with torch.no_grad():
            examples.accumulate()(total, other)


def test_a_version_that_backward_needs_is_missed():
    x = torch.randn(2, 3, requires_grad=True)
    saved = torch.randn(2, 3)
    product = x * saved
    examples.accumulate()(saved, torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_scalars_make_texts_of_their_own():
    def with_scalars(x: Tensor, n: int, f: float, flag: bool = True) -> Tensor:
        return x * f + n if flag else x

    kernel = examples.make(
        ["x", "n", "f", "flag"], ["out"], "out[i] = flag ? x[i] * f + n : x[i];\nn = 0, f = 0, flag = false;",
        with_scalars, cpu="msl",
    )  # fmt: skip
    x = torch.arange(5.0)
    for n, f, flag in ((-(2**31), 1.5, True), (2**31 - 1, 1e-30, True), (3, 3e38, False), (0, -0.0, True)):
        testing.assert_equal(kernel(x, n, f, flag), with_scalars(x, n, f, flag))
    testing.assert_equal(kernel(x, 1, f=0.0), with_scalars(x, 1, 0.0))
    assert len({kernel.source(x, 0, f, flag) for f in (0.0, -0.0) for flag in (True, False)}) == 4


@WAYS
def test_sizes_are_for_grid_and_shapes(way):
    x = testing.randn(5, 7)
    with on_cpu(way):
        for size in ([3, 4], [10, 2]):
            testing.assert_equal(examples.resize()(x, size), examples.resize_reference(x, size))
    assert examples.resize().source(x, [3, 4]) == examples.resize().source(x, [5, 6])


def test_cpu_way_of_a_kernel_can_be_set_and_overruled():
    def three(x: Tensor) -> Tensor:
        return torch.full_like(x, 3)

    kernel = examples.make(["x"], ["out"], "out[i] = 4;", three)
    x = torch.zeros(2)
    assert kernel(x).tolist() == [3, 3]
    kernel.cpu = "msl"
    assert kernel(x).tolist() == [4, 4]
    with on_cpu("reference"):
        assert kernel(x).tolist() == [3, 3]
        with on_cpu("msl"):
            assert kernel(x).tolist() == [4, 4]
        assert kernel(x).tolist() == [3, 3]
    for wrong in (lambda: setattr(kernel, "cpu", "gpu"), lambda: on_cpu("gpu")):
        with pytest.raises(ValueError, match="expected cpu one of 'reference', 'msl', got 'gpu'"):
            wrong()


def test_a_reference_may_return_views_and_inputs():
    def first(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        flipped = x.mT
        return x, flipped, flipped, *(2 * x).split(2)

    kernel = examples.make(["x"], ["a", "b", "c", "d", "e"], "", first)
    x = torch.randn(4, 4)
    results = kernel(x)
    assert len({t.untyped_storage().data_ptr() for t in (x, *results)}) == 6
    assert all(t.is_contiguous() for t in results)


def test_names_belong_to_one_kernel():
    def plus(n):
        def reference(x: Tensor) -> Tensor:
            return x + n

        return examples.make(["x"], ["out"], "out[i] = x[i] + 1;", reference, name="plus_one")

    first = plus(1)
    assert kernels()["plus_one"] is first
    second = plus(1)
    assert kernels()["plus_one"] is second and second.op is first.op
    assert first(torch.zeros(1)).item() == second(torch.zeros(1)).item() == 1
    with pytest.raises(ValueError, match="plus_one: expected a name that no other kernel has"):
        plus(2)
    second.remove()
    third = plus(2)
    assert third(torch.zeros(1)).item() == 2
    third.remove()
    assert "plus_one" not in kernels()
    assert torch_mtl4.MetalKernel is type(third)


@WAYS
def test_many_threads_call_at_once(way):
    kernel = examples.make(["x", "n"], ["out"], "out[i] = x[i] + n;", examples.counted_reference, cpu=way)
    failures = []

    def work(n):
        try:
            for length in (3, 40, 65):
                x = testing.randn(length, seed=n)
                testing.assert_equal(kernel(x, n % 3), x + n % 3)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_way_belongs_to_its_thread():
    seen = []

    def three(x: Tensor) -> Tensor:
        return torch.full_like(x, 3)

    kernel = examples.make(["x"], ["out"], "out[i] = 4;", three)
    with on_cpu("msl"):
        thread = threading.Thread(target=lambda: seen.append(kernel(torch.zeros(1)).item()))
        thread.start()
        thread.join()
        seen.append(kernel(torch.zeros(1)).item())
    assert seen == [3, 4]


def test_sizes_are_checked():
    for wrong, said in (
        (3, "a list of sizes, got int"),
        ([3, 4.0], "whole numbers, got float"),
        ([True, 1], "got bool"),
    ):
        with pytest.raises(TypeError, match=f"expected size .*{said}"):
            examples.resize()(testing.randn(5, 7), wrong)
    testing.assert_equal(
        examples.resize()(testing.randn(5, 7), torch.Size((2, 2))), examples.resize()(testing.randn(5, 7), (2, 2))
    )  # fmt: skip


def test_models_are_copied_and_saved_with_their_kernels(tmp_path):
    model = torch.nn.Linear(2, 2)
    model.kernel = examples.copy()
    assert copy.deepcopy(model).kernel is copy.copy(model.kernel) is examples.copy()
    torch.save(model, tmp_path / "model.pt")
    assert torch.load(tmp_path / "model.pt", weights_only=False).kernel is examples.copy()
    gone = examples.make(["x"], ["out"], "out[i] = x[i];", examples.copy_reference)
    saved = pickle.dumps(gone)
    gone.remove()
    with pytest.raises(ValueError, match="expected a kernel made by metal_kernel before it is loaded"):
        pickle.loads(saved)


@WAYS
def test_views_that_negate(way):
    negated = torch.randn(2, 3, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    with on_cpu(way):
        testing.assert_equal(examples.transpose()(negated), negated.mT.contiguous())
        with pytest.raises(NotImplementedError, match="expected total as it lies in memory, to be written in place"):
            examples.accumulate()(negated, torch.ones(2, 3))
        examples.accumulate()(torch.ones(2, 3), negated)


def test_in_place_in_inference_mode():
    before = torch.zeros(2, 3)
    with torch.inference_mode():
        inside = torch.zeros(2, 3)
        for total in (before, inside):
            examples.accumulate()(total, torch.ones(2, 3))
            testing.assert_equal(total, torch.ones(2, 3))
