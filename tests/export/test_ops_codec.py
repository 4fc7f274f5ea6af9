"""mxfp8_quantize and mxfp8_dequantize as kernels of Core AI: equal bytes, on the MSL runner and in the reference."""

import itertools
import json

import pytest
import torch
from torch.export import Dim

from tests.export import edge
from tests.export.conversion import Calls, constant_of, convert, kernels_of, operations
from torch_mtl4 import _ops, mxfp8_dequantize, mxfp8_quantize
from torch_mtl4.export.coreai.context import CAPS
from torch_mtl4.export.coreai.mxfp8 import dequantize_kernel, quantize_kernel
from torch_mtl4.reference import mxfp8 as reference
from torch_mtl4.testing import assert_equal, randn

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
SCALINGS = ["floor", "rceil", "ceil", "even"]
SIZES = [(1, 32), (3, 31), (5, 33), (9, 1), (7, 96), (2, 1056)]


def hostile(rows, k, dtype, seed=0):
    """Values of all sizes, with zeros of both signs, NaN and Inf among them."""
    x = randn(rows, k, seed=seed) * torch.exp2(randn(rows, k, seed=seed + 1) * (30 if dtype != torch.float16 else 4))
    x = x.to(dtype).flatten()
    for value in (0.0, -0.0, 448.0, -464.0, torch.finfo(dtype).smallest_normal / 8):
        x[::7] = torch.where(
            randn(x[::7].numel(), seed=int(abs(value))) > 0.8, torch.tensor(value, dtype=dtype), x[::7]
        )
    if x.numel() > 40:
        x[-1], x[20] = float("nan"), float("inf")
    return x.reshape(rows, k)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_quantize_runs(dtype, scaling):
    for (rows, k), language in zip(SIZES, itertools.cycle(edge.LANGUAGES)):
        kernel = quantize_kernel(dtype, k, scaling, CAPS)
        for count in (rows, rows + 40):  # the kernel does not depend on it
            x = hostile(count, k, dtype)
            want = reference.mxfp8_quantize(x, scaling=scaling)
            for what, got in (("kernel", edge.run(kernel, [x], language=language)), ("reference", kernel.reference(x))):
                for name, a, b in zip(("data", "scale"), got, want, strict=True):
                    assert_equal(a, b, f"{name} of the {what}, {count, k}, {dtype}, {scaling}")


def test_quantize_rounds_each_magnitude_as_the_reference_does():
    x = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16).reshape(-1, 32)
    x = torch.cat([x, x.roll(7, 1) * 3, torch.rand(512, 32).to(torch.bfloat16)])
    for scaling in SCALINGS:
        kernel = quantize_kernel(torch.bfloat16, 32, scaling, CAPS)
        want = reference.mxfp8_quantize(x, scaling=scaling)
        for got in (edge.run(kernel, [x], checked=False), kernel.reference(x)):
            for a, b in zip(got, want, strict=True):
                assert_equal(a, b, scaling)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dequantize_runs(dtype):
    for (rows, k), language in zip(SIZES, itertools.cycle(edge.LANGUAGES)):
        data = torch.arange(rows * k).reshape(rows, k).remainder(256).to(torch.uint8)
        scale = torch.arange(rows * ((k + 31) // 32)).mul(37).remainder(256).to(torch.uint8).reshape(rows, -1)
        kernel = dequantize_kernel(dtype, k, CAPS)
        want = reference.mxfp8_dequantize(data, scale, dtype=dtype)
        (got,) = edge.run(kernel, [data, scale], language=language)
        assert_equal(got, want, f"{rows, k}, {dtype}")
        assert_equal(kernel.reference(data, scale), want, f"reference, {rows, k}, {dtype}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dynamic"), [((64,), ()), ((3, 33), (0,)), ((2, 5, 64), (1,)), ((2, 3, 40), ())])
def test_converts(dtype, shape, dynamic):
    sizes = [{d: Dim(f"d{d}", min=1, max=4096) for d in dynamic}]

    def there_and_back(x):
        return mxfp8_dequantize(*mxfp8_quantize(x, scaling="even"), dtype=dtype)

    program, emission = convert(Calls(there_and_back), [torch.ones(shape, dtype=dtype)], sizes)
    assert kernels_of(program) == [(kernel.name, kernel.text) for kernel in emission.kernels.values()]
    assert [kernel.op for kernel in emission.kernels.values()] == ["mxfp8_quantize", "mxfp8_dequantize"]


def test_the_grid_of_the_ir_is_that_of_the_plan():
    for shape in ((70, 64), (5, 33), (3, 1056)):
        x = torch.ones(shape)
        program, _ = convert(Calls(mxfp8_quantize), [x])
        (step,) = json.loads(_ops.mxfp8_quantize_plan(x, "rceil", CAPS))["passes"]
        (call,) = operations(program, "coreai.metal4_kernel")
        grid, threads, *shapes = (constant_of(value) for value in list(call.operands)[1:])
        assert threads == step["threads"] and shapes == [[*shape], [shape[0], -(-shape[1] // 32)]]
        assert grid == [g * t for g, t in zip(step["groups"], step["threads"], strict=True)]
