"""A copy of a model with its attention and linears on our kernels; the model itself is not touched."""

import copy

from torch import Tensor, nn

from torch_mtl4.export.coreai.preparations import prepare
from torch_mtl4.export.coreai.quantized import from_coreai_opt, is_quantized
from torch_mtl4.formats import FORMATS
from torch_mtl4.integrations.names import ATTENTION_NAME
from torch_mtl4.integrations.patching import switchable_configs
from torch_mtl4.nn.convert import MXFP8, Conversion, kind_of, quantize_linears


def check_model(model: nn.Module) -> None:
    """Raises unless a model can be exported."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"export: expected model torch.nn.Module, got {type(model).__name__}")
    training = [name or "(the model)" for name, module in model.named_modules() if module.training]
    if training:
        raise ValueError(
            f"export: expected model in evaluation mode, got {training[0]} in training mode; call model.eval()"
        )


def copy_of(model: nn.Module) -> nn.Module:
    """A copy of the modules of a model that holds the same parameters and buffers, not copies of them."""
    return _copied(model, [*model.parameters(), *model.buffers()])


def copy_with_own(model: nn.Module, buffers: list[Tensor]) -> nn.Module:
    """A copy that shares all with the model but these buffers, so that a run of it changes none of the model's."""
    own = {id(buffer) for buffer in buffers}
    return _copied(model, [t for t in [*model.parameters(), *model.buffers()] if id(t) not in own])


def _copied(model: nn.Module, shared: list[Tensor]) -> nn.Module:
    try:
        return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})
    except (TypeError, RuntimeError, AttributeError) as error:
        raise TypeError(
            f"export: expected a model that copy.deepcopy can copy (its weights are shared), got {error}"
        ) from error


def replace_attention(model: nn.Module) -> None:
    """Puts transformers' attention in a copy on our kernel; other attention is replaced while it is traced."""
    for config in switchable_configs(model):
        config._attn_implementation_internal = ATTENTION_NAME


def replace_weights(
    model: nn.Module, weights: str | None, skip: list[str] | None
) -> tuple[nn.Module, list[Conversion]]:
    """Makes a copy traceable, and puts its linear layers on our kernels.

    Returns:
        The copy, or what stands for it where it was itself a linear layer, and a Conversion for each layer.
    """
    formats = (MXFP8, *FORMATS)
    if weights is not None and weights not in formats:
        raise ValueError(f"export: expected weights None or one of {', '.join(map(repr, formats))}, got {weights!r}")
    prepare(model)
    conversions = from_coreai_opt(model) if is_quantized(model) else []
    if weights is None:
        return model, conversions
    if kind_of(model) is None:
        return model, conversions + quantize_linears(model, skip=skip, format=weights)
    holder = nn.Sequential(model)  # quantize_linears replaces what a model contains
    found = quantize_linears(holder, skip=skip, format=weights)
    return holder[0], conversions + [c._replace(name=c.name.removeprefix("0").removeprefix(".")) for c in found]
