"""Merging PEFT adapters into MXFP8 weights."""

import torch
from torch import nn

from torch_mtl4.nn.byte_weights import frozen
from torch_mtl4.nn.convert import replace_everywhere
from torch_mtl4.nn.mxfp8_linear import MXFP8Linear


def merge_and_unload(
    model: nn.Module, *, safe_merge: bool = False, adapter_names: list[str] | None = None
) -> nn.Module:
    """Merges the adapters of a PEFT model into its weights and returns the model without them.

    weight = quantize(dequantize(weight) + adapter)

    What PEFT's own `merge_and_unload` does for float weights; that one raises on MXFP8 layers, since it adds floats to
    bytes. One layer at a time is held in float32. Changes are lost where they are below half a step of the format, 3 to
    6 % of a weight: to keep them all, dequantize the model before adding the adapters.

    Args:
        model: a PeftModel on a model with MXFP8Linear layers, with LoRA or another method that merges into them.
        safe_merge: raise ValueError for adapters that give NaN, and leave the layer as it was.
        adapter_names: the adapters to merge; None takes the active ones.

    Returns:
        The base model; its adapted MXFP8 layers have new bytes.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    for layer in [module for module in model.modules() if isinstance(module, BaseTunerLayer)]:
        packed = layer.get_base_layer()
        if isinstance(packed, MXFP8Linear):
            _merge_layer(layer, packed, safe_merge, adapter_names)
        elif hasattr(layer, "merge"):
            layer.merge(safe_merge=safe_merge, adapter_names=adapter_names)
    return model.unload()


@torch.no_grad()
def _merge_layer(layer: nn.Module, packed: MXFP8Linear, safe_merge: bool, adapter_names: list[str] | None) -> None:
    # [N, K] also where the packed layer stands for one that is stored [K, N]: PEFT takes it for an nn.Linear.
    linear = MXFP8Linear.dequantize(packed, torch.float32)
    replace_everywhere(layer, packed, linear)
    try:
        layer.merge(safe_merge=safe_merge, adapter_names=adapter_names)
    finally:
        replace_everywhere(layer, linear, packed)
    for suffix, values in MXFP8Linear.quantized(packed, linear.weight).items():
        setattr(packed, "weight" + suffix, frozen(values))
    if packed.bias is not None:
        packed.bias.copy_(linear.bias)
