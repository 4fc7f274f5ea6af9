"""Kernels of the user's own on MPS tensors: their text on torch's stream, on software Metal."""

import re

import pytest
import torch
from custom import kernels as examples
from torch import Tensor

from torch_mtl4 import _ops, testing
from torch_mtl4.custom import runner
from torch_mtl4.custom.signature import MSL_TYPES

from . import software_metal as software

M1, OLD = "g13g macos26.0 tensor_ops", "g13g macos15"  # the language of tensor_ops is 4.0
INSIDE = ("dense", "poisoned", "transposed", "gapped")


@pytest.fixture(scope="module")
def m1():
    return software.gpu_of(M1)


@pytest.fixture
def gpu(device, m1):
    return device.ready(m1)


def there(t):
    return software.moved(t, "mps")


@pytest.mark.parametrize("layout", INSIDE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_strides_and_offsets(gpu, layout, dtype):
    x, y = (testing.lay_out(testing.randn(37, dtype=dtype, seed=seed), layout) for seed in (1, 2))
    got = examples.scale_add()(there(x), there(y), 0.5)
    assert got.device.type == "mps" and got.is_contiguous()
    testing.assert_equal(got.cpu(), (x.float() + 0.5 * y.float()).to(dtype))
    assert len(gpu.dispatches) == 1


@pytest.mark.parametrize("layout", INSIDE)
@pytest.mark.parametrize("shape", [(8, 8), (9, 7), (1, 17)])
def test_edge_groups_are_smaller(gpu, layout, shape):
    x = testing.lay_out(testing.randn(*shape), layout)
    testing.assert_equal(examples.transpose()(there(x)).cpu(), x.mT.contiguous())


def test_expanded_operands(gpu):
    row = torch.randn(6).expand(5, 6)
    testing.assert_equal(examples.transpose()(there(row)).cpu(), row.mT.contiguous())
    one = torch.randn(1).expand(9)
    testing.assert_equal(examples.scale_add()(there(one), there(one), 1.0).cpu(), one + one)


def test_several_results(gpu):
    x = testing.randn(50) * 9
    for mine, want in zip(examples.split()(there(x)), examples.split_reference(x), strict=True):
        testing.assert_equal(mine.cpu(), want)


@pytest.mark.parametrize("dtype", [d for d in MSL_TYPES if not d.is_floating_point], ids=str)
def test_whole_numbers(gpu, dtype):
    kernel = examples.copy()
    info = torch.iinfo(dtype)
    x = torch.tensor([info.min, info.max, 0, 1, info.max // 3], dtype=torch.int64).to(dtype)
    testing.assert_equal(kernel(there(x)).cpu(), x)


@pytest.mark.parametrize("layout", testing.LAYOUTS)
def test_in_place(gpu, layout):
    total, x = testing.lay_out(testing.randn(9, 7), layout), testing.randn(9, 7, seed=1)
    on_mps = there(total)
    version = on_mps._version
    assert examples.accumulate()(on_mps, there(x)) is None
    testing.assert_equal(on_mps.cpu(), total + x)
    assert on_mps._version > version
    with pytest.raises(ValueError, match="expected total, which is written in place, in memory of its own"):
        examples.accumulate()(on_mps, on_mps)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_nothing_runs_for_nothing(gpu, shape):
    assert examples.transpose()(torch.empty(shape).to("mps")).shape == (shape[1], shape[0])
    examples.accumulate()(torch.empty(shape).to("mps"), torch.empty(shape).to("mps"))
    assert not gpu.dispatches


def test_an_operand_without_elements(gpu):
    def length(x: Tensor, y: Tensor) -> Tensor:
        return y + x.shape[0]

    kernel = examples.make(
        ["x", "y"], ["out"], "out[i] = y[i] + x.get_extent(0);", length, grid=lambda y: y.shape[:1]
    )  # fmt: skip
    assert kernel(torch.empty(0).to("mps"), torch.ones(3).to("mps")).cpu().tolist() == [1, 1, 1]


def test_a_text_is_compiled_once(gpu):
    x = torch.ones(4).to("mps")
    for _ in range(3):
        examples.scale_add()(x, x, 0.125)
    assert gpu.compiled == 1 and len(gpu.dispatches) == 3
    examples.scale_add()(x, x, 0.25)
    assert gpu.compiled == 2
    assert [name for name, _ in gpu.dispatches] == [
        examples.scale_add().specialize((x, x, alpha)).name for alpha in (0.125,) * 3 + (0.25,)
    ]


def test_what_does_not_compile_is_named_with_its_line(gpu):
    def same(x: Tensor) -> Tensor:
        return x.clone()

    kernel = examples.make(["x"], ["out"], "// a comment\nout[i] = nothing;", same, name="does_not_compile")
    x = torch.ones(4).to("mps")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"(?s)compile custom/does_not_compile_\w+ in Metal 4\.0:.*nothing") as e:
            kernel(x)
        assert re.search(r"does_not_compile:2:\d+: error", str(e.value))
    assert not gpu.dispatches


def test_an_older_system_is_refused(device):
    device.insert(software.gpu_of(OLD))
    x = torch.ones(4).to("mps")
    with pytest.raises(NotImplementedError, match=r"expected macOS 26 or newer, .* got macos15\.0"):
        examples.scale_add()(x, x, 1.0)


def test_devices_do_not_mix(gpu):
    x = torch.ones(4)
    for a, b in ((x, x.to("mps")), (x.to("mps"), x)):
        with pytest.raises(ValueError, match="expected y on the device of x"):
            examples.scale_add()(a, b, 1.0)
        with pytest.raises(ValueError, match="expected y on the device of x"):
            examples.scale_add().op(a, b, 1.0)


def test_the_contract_guards_memory(gpu):
    text = examples.copy().source(torch.ones(4), form="inline")
    name = examples.copy().specialize((torch.ones(4),)).name
    x = torch.ones(4).to("mps")

    def call(tensors=(x, x), grid=(4, 1, 1), threadgroup=(4, 1, 1)):
        _ops.run_metal(name, text, list(tensors), grid, threadgroup)

    call()
    beyond = x.as_strided((5,), (1,), 0)
    far = x.as_strided((2, 1), (1, 2**31), 0)
    for arguments, message in (
        ({"tensors": (x,) * 31}, "1 to 30, got 31"),
        ({"tensors": (x, torch.ones(4))}, r"expected tensors\[1\] on tensors\[0\]'s device mps, got cpu"),
        ({"tensors": (x, beyond)}, r"expected tensors\[1\] within its storage, got 16 bytes"),
        ({"tensors": (far, x)}, r"expected tensors\[0\] with strides of at most 2\^31 - 1, got 2147483648"),
        ({"grid": (4, 1)}, "expected grid of three sizes of at least 1"),
        ({"grid": (4, 0, 1)}, "expected grid of three sizes of at least 1"),
        ({"threadgroup": (-4, 1, 1)}, "expected threadgroup of three sizes"),
        ({"threadgroup": (2048, 1, 1)}, "wants 2048 threads per threadgroup, this GPU runs it with up to 1024"),
        ({"grid": (2**32, 1, 1)}, "a grid has 1 to 4294967295"),
        ({"tensors": (torch.empty(0).to("mps"),) * 2}, "with elements, got none"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call(**arguments)


def test_check_compares_what_mps_gives(gpu, monkeypatch):
    x = there(testing.lay_out(testing.randn(9, 7), "poisoned"))
    report = examples.transpose().check(x)
    assert report and report.runs == 3 and len(gpu.dispatches) == 1
    total = there(testing.randn(9, 7))
    before = total.cpu()
    assert examples.accumulate().check(total, x)
    testing.assert_equal(total.cpu(), before)

    def cannot(*_, **__):
        raise NotImplementedError("kernels run on Linux")

    monkeypatch.setattr(runner, "library", cannot)
    wrong = examples.make(["x"], ["out"], "out[i] = x[i] + 1;", examples.copy_reference)
    report = wrong.check(torch.ones(4).to("mps"))
    assert "out on mps: allowed error" in report.mismatches[0] and "not watched (kernels run on Linux)" in str(report)
    with pytest.raises(NotImplementedError, match="kernels run on Linux"):
        wrong.check(torch.ones(4))
