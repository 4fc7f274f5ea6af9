"""Export to Apple's Core AI: a model with our kernels inside, as a deterministic and verified .aimodel.

    report = torch_mtl4.export.coreai.export(model, inputs, "model.aimodel")

Importing this imports nothing of Core AI; the function does. docs/coreai.md says what is proven and what is not.
"""

import importlib.util
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from torch_mtl4.export.coreai.static_cache import StaticCacheLM

if TYPE_CHECKING:
    from torch_mtl4.export.coreai.report import ExportReport

__all__ = ["StaticCacheLM", "export"]

Inputs = Tensor | Sequence[Any] | Mapping[str, Any]


def export(
    model: nn.Module,
    inputs: Inputs,
    path: str | os.PathLike,
    *,
    attention: bool = True,
    weights: str | None = "mxfp8",
    skip: Sequence[str] | None = None,
    dynamic_shapes: Any = None,
    entrypoint: str = "main",
    more_entrypoints: Mapping[str, Inputs] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    state_names: Sequence[str] | None = None,
    minimum_os: str = "27",
    overwrite: bool = False,
    verify: bool = True,
    verify_inputs: Sequence[Inputs] = (),
) -> "ExportReport":
    """Writes a model as a Core AI asset in which attention and linear layers are calls of our Metal kernels.

    The model is not changed: a copy of its modules, which shares its weights, is put on the kernels and traced with
    torch.export (strict=False). Attention is replaced where transformers' attention interface or
    F.scaled_dot_product_attention is called; the number of key heads is what the graph has, and causal attention stays
    a property of the kernel in place of a mask. The same model, inputs and versions give the same bytes, in any
    process and folder; the asset holds no path of this machine, and its date is SOURCE_DATE_EPOCH, else 1970-01-01.

    Verification needs no GPU. Every kernel text in the saved file runs on the MSL runner, on the operands and the grid
    that the file gives it, against its reference; then the whole file runs with the references in place of its kernels
    and is compared with the model. What is too large for these is skipped, and the report says so.

    Args:
        model: in evaluation mode.
        inputs: of the model's forward: a tensor, a tuple of positional ones, or a dict by name.
        path: of the asset, ending in .aimodel.
        attention: whether to replace attention. What `torch_mtl4.patch` or `enable` replaced already stays so.
        weights: quantizes linear layers to "mxfp8", "mxfp4", "int4" or "int8" (see `torch_mtl4.nn.quantize_linears`);
            None leaves them. Layers that are quantized already stay so; those of coreai-opt keep their bytes.
        skip: modules whose weights stay, see quantize_linears.
        dynamic_shapes: as of torch.export.export; with more_entrypoints a dict of them by entry point.
        entrypoint: name of the function in the asset.
        more_entrypoints: further functions of the same model and weights, by name, each with its inputs
            (such as "decode" with one token).
        input_names, output_names, state_names: names in the asset, where not the model's own. States are the buffers
            that forward changes (such as a static key-value cache), then the inputs that it changes.
        minimum_os: "27", the first system that has Core AI.
        overwrite: replace an asset that is at path.
        verify: verify the saved asset.
        verify_inputs: further inputs to verify the first function with, such as other sizes of dynamic dimensions.

    Returns:
        An ExportReport: what was replaced and why the rest was not, the kernels, sizes, times, and what was verified.

    Raises:
        ImportError: Core AI is not installed.
        TypeError, ValueError: an argument; a model in training mode; another minimum_os; what the linter of custom
            kernels (`torch_mtl4.custom.lint`) calls an error.
        FileExistsError: something is at path.
        NotImplementedError: operations that Core AI lacks, with the modules that call them.
        ExportVerificationError: the saved asset does not compute what the model computes.
    """
    _check_installed()
    arguments = locals().copy()
    with warnings.catch_warnings():
        # It takes the local version of PyTorch's CPU builds (2.13.0+cpu) for another one.
        warnings.filterwarnings("ignore", "coreai-torch has only been validated")
        from torch_mtl4.export.coreai import pipeline
    return pipeline.export(**arguments)


def _check_installed() -> None:
    missing = [name for name in ("coreai", "coreai_torch") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"export: expected the packages of Core AI, got no {' and no '.join(missing)}; "
            'install them with `pip install "torch_mtl4[coreai]"`'
        )


def __getattr__(name: str):
    if name == "ExportVerificationError":
        from torch_mtl4.export.coreai.verify import ExportVerificationError

        return ExportVerificationError
    if name == "ExportReport":
        from torch_mtl4.export.coreai.report import ExportReport

        return ExportReport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
