"""TorchMetalKernel in Apple's converter: the texts that it gets, executed in the MSL runner."""

import hashlib
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from torch_mtl4 import MetalParameter, TorchMetalKernel, msl
from torch_mtl4.custom import runner

coreai_torch = pytest.importorskip("coreai_torch", reason="needs coreai-torch")

THREAD = MetalParameter("i", "uint", "thread_position_in_grid")
HELPERS = "inline TX grow(TX v, int by) { return v + TX(by); }"


def shifted(x: torch.Tensor, by: int, up: bool) -> torch.Tensor:
    return x + (by if up else -by)


def shift_kernel(name="lowered_shift", helpers=HELPERS):
    body = "out[i] = grow(x[i], up ? by : -by); // the last line is a comment"
    return TorchMetalKernel(
        name, ["x", "by", "up"], ["out"], body, shifted, [THREAD], helper_src=helpers, template_dtypes={"x": "TX"}
    )  # fmt: skip


def convert(kernels, function, *args, dynamic_shapes=None):
    class Model(torch.nn.Module):
        def forward(self, *args):
            return function(*args)

    program = torch.export.export(Model().eval(), args, dynamic_shapes=dynamic_shapes)
    converter = coreai_torch.TorchConverter(mode=coreai_torch.TorchConverter.Mode.RELEASE)
    converter.register_custom_kernels(kernels)
    converter.add_exported_program(program.run_decompositions(coreai_torch.get_decomp_table()))
    return converter.to_coreai()


def texts(program):
    """name -> source of the kernels in a program."""
    found = {}

    def walk(operation):
        for region in operation.regions:
            for block in region.blocks:
                for each in block.operations:
                    inner = each.operation
                    if inner.name == "coreai.metal4_kernel":
                        found[inner.attributes["kernel_name"].value] = inner.attributes["kernel_source"].value
                    walk(inner)

    walk(program._module._mlir_module.operation)
    return found


def call(kernel, x, *numbers):
    n = x.shape[0]
    return kernel(x, *numbers, threads_per_grid=(n, 1, 1), threads_per_thread_group=(32, 1, 1), result_shapes=[[n]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_the_text_in_the_program_runs(dtype):
    kernel = shift_kernel()
    x = torch.arange(40).to(dtype)
    found = texts(convert([kernel], lambda x: call(kernel, x, 3, False), x))
    ((name, text),) = found.items()
    assert re.fullmatch("lowered_shift_[a-z]{8}", name)
    assert "constant int& by" in text and "constant bool& up" in text  # as Apple's class declares them
    library = msl.compile(text, name=name, tier=runner.TIER)
    out = torch.empty_like(x)
    library.kernel(name).dispatch(
        threads=40, threadgroup=32, buffers=[x, np.int32(3), np.bool_(False), msl.Output(out)]
    )
    assert not library.report, library.report
    assert torch.equal(out, shifted(x, 3, False))


def test_kernels_of_one_library_do_not_clash():
    first, second = (
        shift_kernel("lowered_a"),
        shift_kernel("lowered_b", "inline TX grow(TX v, int by) { return v - TX(by); }"),
    )
    found = texts(convert([first, second], lambda x: call(first, x, 2, True) + call(second, x, 2, True), torch.ones(8)))
    library = msl.compile("\n".join(found.values()), name="both", tier=runner.TIER)
    for name, wanted in zip(sorted(found), (3.0, -1.0), strict=True):
        x, out = torch.ones(8), torch.empty(8)
        library.kernel(name).dispatch(
            threads=8, threadgroup=8, buffers=[x, np.int32(2), np.bool_(True), msl.Output(out)]
        )
        assert torch.equal(out, torch.full((8,), wanted)), name


def test_each_value_of_a_scalar_is_a_kernel_and_equal_ones_are_shared():
    kernel = shift_kernel("lowered_values")
    program = convert(
        [kernel], lambda x: call(kernel, call(kernel, call(kernel, x, 1, True), 1, True), 2, True), torch.ones(4)
    )
    assert len(texts(program)) == len(kernel.kernel_cache) == 2
    assert str(program).count("coreai.metal4_kernel") == 3


def test_dynamic_sizes():
    kernel = shift_kernel("lowered_dynamic")
    program = convert(
        [kernel],
        lambda x: call(kernel, x, 1, True),
        torch.ones(8),
        dynamic_shapes=(({0: torch.export.Dim("n", max=64)},),),
    )
    assert re.search(r"coreai.metal4_kernel.*-> tensor<\?xf32", str(program))


def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


@pytest.mark.parametrize("factor", [1e39, float("nan")])
def test_numbers_that_no_text_can_hold_are_refused(factor):
    kernel = TorchMetalKernel("lowered_wide", ["x", "factor"], ["out"], "out[i] = x[i] * factor;", scaled, [THREAD])
    with pytest.raises(ValueError, match="lowered_wide: expected factor finite in float32"):
        convert([kernel], lambda x: call(kernel, x, factor), torch.ones(4))


def digests(name):
    """Of a small program: the names of its kernels, and what their texts hash to."""
    kernel = shift_kernel(name)
    found = texts(convert([kernel], lambda x: call(kernel, x, 3, True), torch.ones(4)))
    return [f"{name} {hashlib.sha256(text.encode()).hexdigest()}" for name, text in found.items()]


def test_names_and_texts_are_the_same_in_every_process():
    code = "from tests.custom.test_apple_lowering import digests; print(*digests('lowered_same'), sep='\\n')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1:] == digests("lowered_same")
