"""Exports of whole models, whose saved files then run beside the models as they were."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torch_mtl4 import testing
from torch_mtl4.export.coreai import ExportReport, export, pipeline
from torch_mtl4.export.coreai.twin import run_twin


@dataclass
class Exported:
    """An asset, and what its kernels stand for."""

    report: ExportReport
    references: dict[str, Callable]

    def run(self, inputs: dict[str, Tensor], states: dict[str, Tensor] | None = None, entrypoint: str = "main"):
        """Outputs, and states afterwards, of the saved file with references in the place of its kernels."""
        tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
        return run_twin(
            self.report.path, self.references, tensors, states, entrypoint=entrypoint, watch=lambda name: False
        )


def exported(monkeypatch, model: nn.Module, inputs, path, **options) -> Exported:
    """The model as an asset; whatever of it goes wrong is an error."""
    records, converted = {}, pipeline.convert.converted

    def remember(functions):
        program, found = converted(functions)
        records.update(found)
        return program, found

    monkeypatch.setattr(pipeline.convert, "converted", remember)
    report = export(model, inputs, path, verify=False, **({"weights": None} | options))
    return Exported(report, {name: record.reference for name, record in records.items()})


@torch.no_grad()
def assert_like_the_model(asset: Exported, model: nn.Module, inputs: dict, *, outputs: int) -> None:
    """Every output of the saved file is that of the model, with the attention that it came with."""
    truth = model(**inputs)
    run = asset.run(inputs)
    compared = [name for name in run.outputs if name in truth]
    assert len(compared) == outputs, (list(run.outputs), list(truth))
    for name in compared:
        want = truth[name]
        floor = testing.MODEL_FLOOR_EPS[torch.float32] * torch.finfo(torch.float32).eps
        allowed = floor * max(want[want.isfinite()].abs().max().item(), 1.0)
        testing.assert_close(run.outputs[name], want, allowed, name)
