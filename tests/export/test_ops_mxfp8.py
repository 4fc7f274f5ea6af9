"""mxfp8_linear as kernels of Core AI: converted, and every text run on the MSL runner with the grid of the IR."""

import itertools
import json
import re

import pytest
import torch
from torch.export import Dim

from tests.export import edge
from tests.export.conversion import Calls, constant_of, convert, kernels_of, operations
from torch_mtl4 import _ops, mxfp8_linear
from torch_mtl4.export.coreai.context import CAPS
from torch_mtl4.export.coreai.mxfp8 import linear_kernel
from torch_mtl4.testing import assert_equal, exact_layer, exact_x, integers

DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def layer(n, k, dtype, bias):
    weight, scale, values = exact_layer(n, k)
    constants = {"weight": weight, "weight_scale": scale}
    if bias:
        constants["bias"] = integers(-9, 9, (n,), 4).to(dtype)
    return constants, values


def check_kernel(kernel, m, n, k, dtype, bias, **options):
    constants, values = layer(n, k, dtype, bias)
    x = exact_x(m, k, dtype)
    operands = [x, *constants.values()]
    want = (x.double() @ values.T + (constants["bias"].double() if bias else 0)).to(dtype)
    (got,) = edge.run(kernel, operands, **options)
    what = f"{kernel.name}, M, N, K = {m, n, k}, {options}"
    assert_equal(got, want, what)
    assert_equal(kernel.reference(*operands), want, f"reference of {what}")


def entry_of(kernel):
    return re.search(r"using Kernel = \w+::(\w+)<", kernel.text)[1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "dynamic"), [((64,), ()), ((3, 64), ()), ((2, 3, 5, 64), ()), ((2, 9, 64), (1,)), ((2, 3, 64), (0, 1))]
)
def test_converts(dtype, shape, dynamic):
    bias = len(shape) % 2 == 0
    constants, _ = layer(96, 64, dtype, bias)
    sizes = {d: Dim(f"d{d}", min=1, max=4096) for d in dynamic}
    program, emission = convert(Calls(mxfp8_linear, **constants), [torch.ones(shape, dtype=dtype)], [sizes])
    (kernel,) = emission.kernels.values()
    assert kernels_of(program) == [(kernel.name, kernel.text)] and kernel.n_inputs == 3 + bias
    names = {operation.name for operation in operations(program)}
    assert not names & {"coreai.transpose", "coreai.cast"} or dynamic, names


def test_the_grid_of_the_ir_is_that_of_the_plan():
    sizes = itertools.product((1, 8, 9, 33, 70), ((96, 64), (130, 128), (513, 1024)))
    for (m, (n, k)), dtype in zip(sizes, itertools.cycle(DTYPES)):
        constants, _ = layer(n, k, dtype, False)
        x = torch.ones(m, k, dtype=dtype)
        program, emission = convert(Calls(mxfp8_linear, **constants), [x])
        caps = CAPS if dtype == torch.float16 else CAPS.replace(" scale_planes", "")
        (step,) = json.loads(_ops.mxfp8_linear_plan(x, *constants.values(), None, caps))["passes"]
        (call,) = operations(program, "coreai.metal4_kernel")
        grid, threads, shape = (constant_of(value) for value in list(call.operands)[3:])
        assert threads == step["threads"] and shape == [m, n]
        assert grid == [g * t for g, t in zip(step["groups"], step["threads"], strict=True)]
        (kernel,) = emission.kernels.values()
        assert kernel.launch(emission.calls[0].shapes) == (tuple(grid), tuple(threads), ((m, n),))


@pytest.mark.parametrize("language", edge.LANGUAGES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 37, 96), (3, 96, 40), (8, 33, 1056), (9, 65, 33), (33, 64, 128), (65, 130, 160)]
)
def test_runs(language, dtype, m, n, k):
    bias = (m + n) % 2 == 0
    check_kernel(linear_kernel(dtype, m, n, k, bias, CAPS), m, n, k, dtype, bias, language=language)


@pytest.mark.parametrize("language", edge.LANGUAGES)
@pytest.mark.parametrize(("dtype", "chosen_for"), [(torch.float16, 8), (torch.float16, 4096), (torch.float32, 4096),
                                                   (torch.bfloat16, 4096), (torch.bfloat16, 2)])  # fmt: skip
def test_one_text_serves_every_number_of_rows(language, dtype, chosen_for):
    kernel = linear_kernel(dtype, chosen_for, 70, 128, True, CAPS)
    for m in (1, 7, 9, 64, 65):
        check_kernel(kernel, m, 70, 128, dtype, True, language=language)


@pytest.mark.parametrize("layout", edge.LAYOUTS)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("language", edge.LANGUAGES)
def test_runs_in_every_layout_and_order(layout, shuffle, language):
    for dtype, m in ((torch.float16, 40), (torch.bfloat16, 40), (torch.float32, 40), (torch.float16, 5)):
        kernel = linear_kernel(dtype, m, 70, 128, True, CAPS)
        check_kernel(kernel, m, 70, 128, dtype, True, layout=layout, shuffle=shuffle, language=language)


def test_halves_take_scale_planes_where_their_rows_fit_them():
    entries = {
        (dtype, m, k): entry_of(linear_kernel(dtype, m, 64, k, False, CAPS))
        for dtype, m, k in itertools.product(DTYPES, (8, 9), (128, 160))
    }
    planes = [key for key, entry in entries.items() if entry == "CoreAiScalePlanes"]
    assert planes == [(torch.float16, 9, 128)]
    assert {entry for (_, m, _), entry in entries.items() if m == 8} == {"CoreAiGemv"}
    assert {entry for (dtype, m, _), entry in entries.items() if m == 9 and dtype == torch.float32} == {
        "CoreAiSimdgroup"
    }
