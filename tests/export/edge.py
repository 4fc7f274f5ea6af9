"""Emitted kernels on the MSL runner, bound as Core AI binds them: tensor handles, and the grid of the call."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

pytest.importorskip("coreai_torch", reason="export to Core AI needs coreai-torch: pip install 'torch_mtl4[coreai]'")

from torch_mtl4 import msl
from torch_mtl4.export.coreai.context import EmittedKernel

# Core AI compiles a text as MSL 4.0 or newer; nobody says which.
LANGUAGES = ("4.0", "4.1")
LAYOUTS = ("m5", "pre_m5", "scrambled")
SENTINEL = 0xA5


def run(kernel: EmittedKernel, operands: Sequence[Tensor], *, language: str = "4.0", checked: bool = True,
        **options) -> tuple[Tensor, ...]:  # fmt: skip
    """The results of a call, after a run without findings.

    Args:
        language: "4.0" or "4.1".
        options: of msl.Kernel.dispatch, such as layout and shuffle.
    """
    launch = kernel.launch([tuple(t.shape) for t in operands])
    results = [_unwritten(shape, slot.dtype) for shape, slot in zip(launch.results, kernel.results, strict=True)]
    library = msl.compile(kernel.text, name=f"{kernel.op}.metal", tier=f"macos27:{language}", checked=checked)
    found = library.kernel(kernel.name).dispatch(
        threads=launch.grid,
        threadgroup=launch.threadgroup,
        buffers=[*operands, *(msl.Output(t) for t in results)],
        **options,
    )
    assert not found.report, f"{kernel.name}, MSL {language}:\n{found.report}"
    return tuple(results)


def _unwritten(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.full(shape, SENTINEL if dtype == torch.uint8 else float("nan"), dtype=dtype)
