"""Ties the quantizer to transformers without importing it: registration, and models that were quantized in place."""

from torch import nn

from torch_mtl4.integrations._on_import import when_imported
from torch_mtl4.integrations.conv1d import CONV1D
from torch_mtl4.integrations.experts import EXPERTS
from torch_mtl4.nn.convert import Conversion, register_kind


def register() -> None:
    """Makes `Mtl4Config` known to transformers, now or once it is imported, and its layers to quantize_linears."""
    when_imported("transformers.quantizers.auto", _register_quantizer)
    register_kind(CONV1D)
    register_kind(EXPERTS)


def _register_quantizer(auto) -> None:
    from torch_mtl4.integrations import quantizer

    if hasattr(quantizer, "register"):  # else it is being imported, and registers when it is done
        quantizer.register(auto)


def is_transformers_model(model: nn.Module) -> bool:
    """Whether the model is one that transformers saves and loads."""
    return any(
        (c.__module__, c.__name__) == ("transformers.modeling_utils", "PreTrainedModel") for c in type(model).__mro__
    )


def attach_quantizer(model: nn.Module, conversions: list[Conversion], scaling: str = "rceil") -> None:
    """Gives a transformers model that `quantize_linears` has converted the quantizer that loading would have given it.

    Without it save_pretrained would write bytes that nothing in config.json explains. Other models are left alone.
    """
    if is_transformers_model(model) and any(c.converted for c in conversions):
        from torch_mtl4.integrations.quantizer import attach

        attach(model, conversions, scaling)


def detach_quantizer(model: nn.Module) -> None:
    """Takes the quantizer away again, from a model that has float layers again."""
    if getattr(model, "quantization_method", None) == "mtl4":
        model.hf_quantizer.remove_quantization_config(model)
