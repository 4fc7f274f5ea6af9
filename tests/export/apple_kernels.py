"""Assets with one small kernel in them, made by Apple's own TorchMetalKernel, and changes of saved assets."""

import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor, nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import coreai_torch

from torch_mtl4.export.coreai import asset
from torch_mtl4.export.coreai._apple import StringAttr

BODY = """
    if (i.x >= x.get_extent(0) || i.y >= x.get_extent(1)) return;
    scaled[i.x, i.y] = x[i.x, i.y] * w[i.x];
    if (i.x != 0) return;
    float most = x[0, i.y];
    for (int c = 1; c < x.get_extent(0); ++c) most = max(most, x[c, i.y]);
    largest[i.y] = most;
"""
_count = iter(range(10**6))


def scale_rows(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return x * w, x.amax(-1)


class ScaleRows(nn.Module):
    """largest * (x @ weight.T * w), the kernel twice."""

    def __init__(self, body: str = BODY):
        super().__init__()
        self.kernel = coreai_torch.TorchMetalKernel(
            f"scale_rows{next(_count)}",  # names are unique in a process
            input_names=["x", "w"],
            result_names=["scaled", "largest"],
            src=body,
            torch_defn=scale_rows,
            metal_params=[coreai_torch.MetalParameter("i", "uint2", "thread_position_in_grid")],
        )
        self.linear = nn.Linear(24, 24)
        self.w = nn.Parameter(torch.randn(24))

    def forward(self, x):
        x = self.linear(x)
        for _ in range(2):
            scaled, largest = self.kernel(
                x,
                self.w,
                threads_per_grid=(x.shape[1], x.shape[0], 1),
                threads_per_thread_group=(8, 4, 1),
                result_shapes=[list(x.shape), [x.shape[0]]],
            )
            x = scaled * largest[:, None]
        return x


class Made(NamedTuple):
    """A ScaleRows, inputs for it, and its asset with the record of its kernel by name."""

    model: ScaleRows
    x: Tensor
    path: Path
    records: dict

    def copied_to(self, folder: Path) -> "Made":
        """The same with an asset and records that may be changed."""
        shutil.copytree(self.path, folder / self.path.name)
        records = {name: SimpleNamespace(**vars(record)) for name, record in self.records.items()}
        return self._replace(path=folder / self.path.name, records=records)

    @property
    def name(self) -> str:
        return next(iter(self.records))


def make(folder: Path, model: ScaleRows, x: Tensor, dynamic_shapes=None) -> Made:
    program = torch.export.export(model.eval(), (x,), dynamic_shapes=dynamic_shapes)
    converter = coreai_torch.TorchConverter(mode=coreai_torch.TorchConverter.Mode.RELEASE)
    converter.register_custom_kernels([model.kernel])
    converter.add_exported_program(
        program.run_decompositions(coreai_torch.get_decomp_table()), input_names=["x"], output_names=["y"]
    )
    program = converter.to_coreai()
    asset.rename_kernels(program)
    kernels = asset.kernels_of(program)
    asset.save(program, folder / "rows.aimodel", {kernel.name: kernel.digest for kernel in kernels}, "27")
    records = {k.name: SimpleNamespace(name=k.name, text=k.text, reference=scale_rows) for k in kernels}
    return Made(model, x, folder / "rows.aimodel", records)


def change(path: Path, edit) -> Path:
    """Saves an asset again after edit(operation) of each of its kernel calls."""
    program = asset.load(path)
    with program._module:
        for _, op in asset.calls_in(program):
            edit(op)
    program.save_asset(path)
    return path


def set_text(op, old: str, new: str) -> None:
    text = op.attributes["kernel_source"].value
    assert old in text
    op.attributes["kernel_source"] = StringAttr.get(text.replace(old, new))
