"""torch_mtl4.export.coreai.export: what it replaces, what it leaves alone, and that builds are the same."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import torch_mtl4

pytest.importorskip("coreai_torch", reason="Core AI is not installed: pip install torch_mtl4[coreai]")

from tests.export.small_models import small
from torch_mtl4.export.coreai import ExportVerificationError, asset, export
from torch_mtl4.testing import assert_equal, randn

ROOT = Path(__file__).parents[2]


def state_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(model, its state and modules before, report) of a verified export."""
    model = small()
    before = state_of(model), list(model.modules())
    x = randn(2, 5, 32)
    path = tmp_path_factory.mktemp("small") / "small.aimodel"
    return model, before, export(model, x, path, verify_inputs=[x + 1])  # weights="mxfp8" by default


def test_the_model_is_what_it_was(exported):
    model, (state, modules), _ = exported
    assert list(model.modules()) == modules
    assert not any("mtl4" in key for module in modules for key in vars(module))
    for name, tensor in model.state_dict().items():
        assert_equal(tensor, state[name])
    assert model(randn(2, 5, 32))["y"].requires_grad


def test_what_was_replaced_is_reported(exported):
    _, _, report = exported
    on_kernel = {(row.name, row.what): row.on_kernel for row in report.modules}
    assert on_kernel == {
        ("", "attention"): True,
        ("mha", "attention"): True,
        ("mha.out_proj", "weights"): False,
        ("query", "weights"): True,
        ("key", "weights"): True,
        ("mlp.0", "weights"): True,
        ("mlp.2", "weights"): True,
    }
    assert report.dropped == ("rows (int)",)
    assert report.functions == {"main": {"inputs": ["x"], "outputs": ["y"], "states": []}}
    assert report.bytes == asset.size_of(report.path) > 0
    kernels = asset.kernels_of(report.path)
    assert report.kernel_calls == len(kernels) == 6
    assert {k.name: k.sha256 for k in report.kernels} == {k.name: k.digest for k in kernels}


def test_the_report_reads_as_a_page_and_as_json(exported):
    _, _, report = exported
    page = str(report)
    for line in (
        "main(x) -> y",
        "attention: 2 of 2 modules on a kernel",
        "weights: 4 of 5 modules on a kernel",
        "1 x NonDynamicallyQuantizableLinear: a subclass",
        "not in the asset: rows (int)",
        "  y: off the model by",
    ):
        assert line in page
    data = json.loads(report.json())
    assert data["path"] == "small.aimodel" and len(data["kernels"]) == len(report.kernels)


def test_it_was_verified(exported):
    _, _, report = exported
    assert sorted(report.verification.kernels) == sorted(k.name for k in report.kernels)
    assert not report.verification.skipped
    error, allowed = report.verification.outputs["y"]
    assert error <= allowed < 1e-4


def test_builds_of_other_processes_and_folders_are_the_same_and_hold_no_path(tmp_path):
    paths = []
    for folder in ("one", "two/deeper"):
        where = tmp_path / folder
        where.mkdir(parents=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(len(folder))}
        command = [sys.executable, "-m", "tests.export.small_models", f"{folder.partition('/')[0]}.aimodel"]
        subprocess.run(command, cwd=where, env=environment, check=True, capture_output=True)
        paths.append(next(where.iterdir()))
    one, two = ({file.name: file.read_bytes() for file in path.iterdir()} for path in paths)
    assert one == two and set(one) == {"main.mlirb", "main.hash", "metadata.json"}
    for content in one.values():
        for text in (str(ROOT), str(tmp_path), sys.prefix, str(Path.home()), "site-packages", ".py"):
            assert text.encode() not in content


def test_without_attention_and_weights_there_are_no_kernels(tmp_path):
    x = {"x": randn(2, 5, 32), "scale": 2.0}
    report = export(small(), x, tmp_path / "a.aimodel", attention=False, weights=None)
    assert not report.kernels and {row.reason for row in report.modules} == {"attention=False"}


def test_dynamic_sizes_and_names(tmp_path):
    sizes = {"x": {0: torch.export.Dim("batch", min=1, max=8), 1: torch.export.Dim("length", min=2, max=64)}}
    report = export(
        small(), randn(2, 5, 32), tmp_path / "a.aimodel", weights="mxfp8", dynamic_shapes=sizes, input_names=["tokens"],
        output_names=["result"], verify_inputs=[randn(1, 9, 32), randn(3, 2, 32)],
    )  # fmt: skip
    assert report.functions["main"] == {"inputs": ["tokens"], "outputs": ["result"], "states": []}
    assert None in asset.kernels_of(report.path)[0].operands[0][1]


class Counter(nn.Module):
    """Adds what it is given to what it keeps."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.register_buffer("total", torch.zeros(3, 32))

    def forward(self, x):
        self.total.add_(self.linear(x))
        return self.total * 2


def test_buffers_that_change_are_states_and_stay_as_they_were(tmp_path):
    torch.manual_seed(0)
    model = Counter().eval()
    report = export(model, randn(3, 32), tmp_path / "a.aimodel", weights=None)
    assert report.functions["main"]["states"] == ["total"]
    assert "total" in report.verification.outputs
    assert_equal(model.total, torch.zeros(3, 32))


def test_two_functions_share_their_weights(tmp_path):
    one = export(small(), randn(2, 8, 32), tmp_path / "one.aimodel", weights=None, verify=False)
    two = export(
        small(), randn(2, 8, 32), tmp_path / "two.aimodel", entrypoint="prefill",
        more_entrypoints={"decode": randn(2, 1, 32)}, weights=None,
    )  # fmt: skip
    assert list(two.functions) == ["prefill", "decode"]
    assert not two.verification.skipped
    weights = sum(p.numel() * p.element_size() for p in small().parameters())
    texts = sum(k.characters for k in two.kernels) - sum(k.characters for k in one.kernels)
    assert two.bytes - one.bytes - texts < weights


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": 3}, TypeError, "expected model torch.nn.Module, got int"),
        ({"model": small().train()}, ValueError, r"in evaluation mode, got \(the model\) in training mode"),
        (
            {"weights": "int3"},
            ValueError,
            "expected weights None or one of 'mxfp8', 'mxfp4', 'int4', 'int8', got 'int3'",
        ),
        ({"minimum_os": "26"}, ValueError, "expected minimum_os one of '27', got '26'"),
        ({"path": "a.mlpackage"}, ValueError, "suffix .aimodel"),
        ({"inputs": 3}, TypeError, "expected inputs a tensor, a tuple or a dict of them, got int"),
        ({"inputs": (randn(2, 5, 32), 2.0)}, TypeError, r"expected inputs\[1\] a tensor, got float"),
        ({"output_names": ["a", "b"]}, ValueError, r"expected output_names 1 different names, for \['y'\]"),
    ],
)
def test_bad_arguments(tmp_path, change, error, message):
    arguments = {"model": small(), "inputs": randn(2, 5, 32), "path": "a.aimodel"} | change
    arguments["path"] = tmp_path / arguments["path"]
    with pytest.raises(error, match=message):
        export(**arguments)
    assert not list(tmp_path.iterdir())


class Unknown(nn.Module):
    def forward(self, x):
        return torch.special.i1(x)


def test_operations_that_core_ai_lacks_are_named_with_their_modules(tmp_path):
    model = nn.Sequential(nn.Linear(8, 8), Unknown()).eval()
    with pytest.raises(NotImplementedError, match=r"got aten::special_i1.default in 1 \(Unknown\)"):
        export(model, randn(2, 8), tmp_path / "a.aimodel")


def test_an_asset_that_computes_something_else_is_an_error(tmp_path, monkeypatch):
    from torch_mtl4.export.coreai import references

    right = references.mxfp8_linear
    monkeypatch.setattr(references, "mxfp8_linear", lambda *tensors: right(*tensors) + 1)
    from torch_mtl4.export.coreai import mxfp8

    mxfp8.linear_kernel.cache_clear()
    try:
        with pytest.raises(ExportVerificationError, match=r"mxfp8_linear_\w+: result 0 on .* at \[0, 0\] expected"):
            export(nn.Sequential(nn.Linear(32, 32)).eval(), randn(3, 32), tmp_path / "a.aimodel", weights="mxfp8")
    finally:
        mxfp8.linear_kernel.cache_clear()


def test_a_replacement_that_attends_to_something_else_is_an_error(tmp_path, monkeypatch):
    """What the asset is compared with has the model's own attention, not what was put in its place."""
    from torch_mtl4.integrations import sdpa

    ours = sdpa.scaled_dot_product_attention
    monkeypatch.setattr(sdpa, "scaled_dot_product_attention", lambda q, k, v, *a, **kw: ours(q * 2, k, v, *a, **kw))
    with pytest.raises(ExportVerificationError, match=r"y: .* expected"):
        export(small(), randn(2, 5, 32), tmp_path / "wrong.aimodel", weights=None)


def test_core_ai_that_is_not_installed(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "coreai_torch" else find(name, *a)
    )
    with pytest.raises(ImportError, match=r"got no coreai_torch; install .*torch_mtl4\[coreai\]"):
        export(small(), randn(2, 5, 32), tmp_path / "a.aimodel")


def test_what_the_linter_refuses_is_refused(tmp_path):
    def reference(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    kernel = torch_mtl4.metal_kernel(
        "lint_refuses", ["x"], ["y"], "y[i] = x[i] + 1; }", reference, grid=lambda x: (x.shape[0], 1, 1),
        threadgroup=(32, 1, 1), thread_parameters={"i": "uint thread_position_in_grid"},
    )  # fmt: skip

    class Model(nn.Module):
        def forward(self, x):
            return kernel(x)

    with pytest.raises(ValueError, match=r"(?s)expected kernels that Core AI can take, got.*unbalanced-brackets"):
        export(Model().eval(), randn(8), tmp_path / "a.aimodel")
