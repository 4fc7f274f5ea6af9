"""Calls of TorchMetalKernel in Core AI: our text, its scalars in it, and the sizes that the graph computes."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from tests.export.conversion import Calls, constant_of, convert, kernels_of, operations
from torch_mtl4 import MetalParameter, TorchMetalKernel, msl
from torch_mtl4.export import coreai
from torch_mtl4.testing import assert_equal, integers

_numbers = itertools.count()


def shifted(x: Tensor, by: int) -> tuple[Tensor, Tensor]:
    return x + by, (x - by).to(torch.float16)


def make():
    return TorchMetalKernel(
        f"emit_shifted_{next(_numbers)}", ["x", "by"], ["up", "down"],
        "up[i] = x[i] + TX(by);\ndown[i] = half(x[i] - TX(by)); // the last line", shifted,
        [MetalParameter("i", "uint", "thread_position_in_grid")], template_dtypes={"x": "TX"},
    )  # fmt: skip


def call(kernel, x, by):
    n = x.shape[0]
    sizes = {"threads_per_grid": (n, 1, 1), "threads_per_thread_group": (32, 1, 1)}
    return kernel(x, by, **sizes, result_shapes=[[n]] * len(kernel.result_names))


def test_converts_and_its_text_runs():
    kernel, x = make(), integers(-9, 9, (50,), 1).float()
    program, emission = convert(Calls(lambda x: call(kernel, call(kernel, x, 3)[0], 3)), [x])
    (emitted,) = emission.kernels.values()
    assert kernels_of(program) == [(emitted.name, emitted.text)] * 2 and "int by = 3;" in emitted.text
    (first, _) = operations(program, "coreai.metal4_kernel")
    assert [constant_of(v) for v in list(first.operands)[1:]] == [[50, 1, 1], [32, 1, 1], [50], [50]]
    up, down = torch.empty(50), torch.empty(50, dtype=torch.float16)
    library = msl.compile(emitted.text, name="emitted", tier="macos27:4.0")
    library.kernel(emitted.name).dispatch(threads=50, threadgroup=32, buffers=[x, msl.Output(up), msl.Output(down)])
    assert not library.report, library.report
    for got, reference, want in zip((up, down), emitted.reference(x), shifted(x, 3), strict=True):
        assert_equal(got, want)
        assert_equal(reference, want)
    with pytest.raises(NotImplementedError, match="the grid of a call, which the graph has"):
        emitted.launch([(50,)])


def test_sizes_that_the_graph_computes():
    kernel = make()
    program, _ = convert(Calls(lambda x: call(kernel, x, 3)), [torch.ones(8)], [{0: Dim("n", min=2, max=64)}])
    (made,) = operations(program, "coreai.metal4_kernel")
    assert [constant_of(v) for v in list(made.operands)[1:]] == [None, [32, 1, 1], None, None]
    assert [str(r.type)[:11] for r in made.results] == ["tensor<?xf3", "tensor<?xf1"]


def test_each_value_of_a_scalar_is_a_kernel():
    kernel = make()
    _, emission = convert(Calls(lambda x: call(kernel, x, 1)[0] + call(kernel, x, 2)[0]), [torch.ones(8)])
    assert len(emission.kernels) == 2


@pytest.mark.parametrize(("value", "error", "text"), [
    (torch.ones(4, dtype=torch.int64), TypeError, "expected x of dtype int32"),
    (torch.ones(0), NotImplementedError, "x with elements"),
])  # fmt: skip
def test_refused(value, error, text):
    kernel = make()
    with pytest.raises(error, match=text):
        convert(Calls(lambda x: call(kernel, x, 1)), [value])


def test_an_asset_is_verified(tmp_path):
    kernel = make()
    report = coreai.export(Calls(lambda x: call(kernel, x, 3)[0]).eval(), (torch.randn(40),), tmp_path / "a.aimodel")
    assert report.verification.kernels == [row.name for row in report.kernels] and report.warnings == ()


def test_an_export_refuses_what_the_linter_calls_an_error(tmp_path):
    kernel = make()
    sizes = {"threads_per_grid": (0, 1, 1), "threads_per_thread_group": (32, 1, 1), "result_shapes": [[8], [8]]}
    with pytest.raises(ValueError, match=r"grid-size"):
        coreai.export(Calls(lambda x: kernel(x, 3, **sizes)).eval(), (torch.ones(8),), tmp_path / "a.aimodel")
    assert not (tmp_path / "a.aimodel").exists()


def test_an_export_reports_warnings(tmp_path):
    kernel = make()
    module = Calls(lambda x: sum(call(kernel, x, n)[0] for n in range(9)))
    report = coreai.export(module.eval(), (torch.ones(8),), tmp_path / "a.aimodel", verify=False)
    assert len(report.warnings) == 1 and "[many-texts]" in report.warnings[0] and "[many-texts]" in str(report)
