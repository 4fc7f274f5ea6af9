"""How transformers 5 loads a quantized model: by operations on tensors, which conversions may merge or rename."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from transformers.core_model_loading import Chunk, Concatenate, ConversionOps, MergeModulelist, WeightConverter

from torch_mtl4.integrations.quantizer import Mtl4Quantizer, owner, packed_modules, require_scales
from torch_mtl4.nn.byte_weights import frozen


class Mtl4Quantize(ConversionOps):
    """The operation on a float weight that was read: its bytes and its scales."""

    def __init__(self, hf_quantizer: "Mtl4QuantizerV5"):
        self.hf_quantizer = hf_quantizer

    def convert(self, input_dict, model=None, **kwargs):
        converted = {}
        for name in list(input_dict):
            value = input_dict.pop(name)  # so that the float weight is freed before the next one
            value = value[0] if isinstance(value, list) else value
            if self.hf_quantizer.param_needs_quantization(model, name):
                quantized = self.hf_quantizer.quantized_parameters(model, name, value)
                converted.update({key: frozen(tensor) for key, tensor in quantized.items()})
            else:
                converted[name] = value
        return converted


class Mtl4QuantizerV5(Mtl4Quantizer):
    """Mtl4Quantizer for transformers 5."""

    # Conversions of a `weight` are thereby done to its `weight_scale` too.
    serialized_names = {"weight": ["weight", "weight_scale"]}  # noqa: RUF012

    def tied_parameters(self, model) -> list[str]:
        return [*model.all_tied_weights_keys.keys(), *model.all_tied_weights_keys.values()]

    def param_element_size(self, model, param_name: str, param: Tensor) -> float:
        if self.quantization_config.dequantize and param.dtype == torch.uint8:
            module, name = owner(model, param_name)
            return module.float_dtype.itemsize if name in module.weight_names else 0
        return param.element_size()

    def get_quantize_ops(self) -> Mtl4Quantize:
        return Mtl4Quantize(self)

    def get_new_dtype(self, converter, param, dtype):
        new = super().get_new_dtype(converter, param, dtype)
        if new == torch.uint8:
            raise ValueError(
                f"Mtl4Config: expected {converter.source_patterns[0]} uint8 as its config.json says, got float; name "
                "the layer in modules_to_not_convert there if it is not quantized"
            )
        return new

    def update_weight_conversions(self, weight_conversions, model):
        self._conversions = super().update_weight_conversions(weight_conversions, model)
        return self._conversions

    def _process_model_after_weight_loading(self, model, **kwargs):
        self._choose_layout_for_saving(model)
        self._initialize_missing(model)
        return super()._process_model_after_weight_loading(model, **kwargs)

    def attached_to(self, model) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping

        if getattr(model, "_weight_conversions", None) is None:  # made from a config, not loaded
            model._weight_conversions = get_model_conversion_mapping(model, add_legacy=False)
        self.update_weight_conversions(model._weight_conversions, model)
        self._choose_layout_for_saving(model)

    def _choose_layout_for_saving(self, model) -> None:
        """Keeps the conversions that saving can undo on bytes and scales alike; elsewhere the modules' layout is saved.

        Scales go with their weights as long as only rows and experts are split or merged.
        """
        used = {id(conversion) for conversion in getattr(model, "_weight_conversions", ())}
        names = [f"{name}.{key}" for name, module in packed_modules(model) for key in module.weight_names]
        kept = []
        for conversion, following in pairwise([*self._conversions, None]):
            if id(conversion) not in used or _is_for_scales(conversion):
                continue
            if isinstance(conversion, WeightConverter) and any(_makes(conversion, name) for name in names):
                if not (_is_for_scales(following) and _keeps_columns(conversion)):
                    continue
                kept += [conversion, following]
            else:
                kept.append(conversion)
        model._weight_conversions = kept

    def _initialize_missing(self, model) -> None:
        """Layers that the checkpoint does not have become float layers, initialized by the model."""
        for name, module in packed_modules(model):
            unset = [key for key, p in module.named_parameters(recurse=False) if not _is_loaded(p)]
            if not any(key in unset for key in module.weight_names):
                require_scales(name, [key for key in module.weight_names if f"{key}_scale" in unset])
                continue
            device = module.weight.device
            layer = self.keep_float(model, name).to_empty(device=device)
            _initializer(model, name)._init_weights(layer)


def _is_for_scales(conversion) -> bool:
    return isinstance(conversion, WeightConverter) and conversion.target_patterns[0].endswith("_scale")


def _makes(conversion: WeightConverter, name: str) -> bool:
    return any(name.endswith(target.replace("*", "")) for target in conversion.target_patterns)


def _keeps_columns(conversion: WeightConverter) -> bool:
    """Whether a conversion leaves the last dimension, that of the blocks, as it is."""
    dims = 3 if isinstance(conversion.operations[0], MergeModulelist) else 2
    return all(
        isinstance(op, (MergeModulelist, Concatenate, Chunk)) and 0 <= op.dim < dims - 1 for op in conversion.operations
    )


def _is_loaded(parameter: Tensor) -> bool:
    # On the meta device it is one that accelerate reads from disk when it is needed.
    return parameter.is_meta or getattr(parameter, "_is_hf_initialized", False)


def _initializer(model: nn.Module, name: str) -> nn.Module:
    """The innermost model above name, which knows how its layers are initialized."""
    path = name.split(".")
    above = (model.get_submodule(".".join(path[:depth])) for depth in reversed(range(len(path))))
    return next(module for module in above if hasattr(module, "_init_weights"))
