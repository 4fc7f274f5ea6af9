"""How transformers 4 loads a quantized model: parameters one by one, missing ones found by name beforehand."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from torch_mtl4.integrations.quantizer import Mtl4Quantizer, owner, packed_modules, require_scales
from torch_mtl4.nn.byte_weights import ByteWeights, frozen


class Mtl4QuantizerV4(Mtl4Quantizer):
    """Mtl4Quantizer for transformers 4.57."""

    requires_parameters_quantization = True

    def tied_parameters(self, model) -> list[str]:
        model = deepcopy(model)  # on the meta device: it costs nothing
        model.tie_weights()
        names: dict[int, list[str]] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
        return [name for shared in names.values() if len(shared) > 1 for name in shared]

    def prepare(self, packed: ByteWeights) -> None:
        # Models initialize their empty weights by name before loading; with bytes that raises.
        for name in packed.weight_names:
            empty = packed._parameters[name].to(packed.float_dtype)
            packed._parameters[name] = nn.Parameter(empty, requires_grad=False)
        packed._init_float_dtype(packed.float_dtype)  # nothing is loaded into buffers: none may stay on the meta device

    def attached_to(self, model) -> None:
        model.config._pre_quantization_dtype = model.dtype

    def get_special_dtypes_update(self, model, dtype) -> dict[str, torch.dtype]:
        size = dtype if self.quantization_config.dequantize else torch.uint8
        return {f"{name}.{key}": size for name, module in packed_modules(model) for key in module.weight_names}

    def update_missing_keys(self, model, missing_keys: list[str], prefix: str) -> list[str]:
        missing = set(missing_keys)
        for name, module in packed_modules(model):
            scales = {f"{name}.{key}_scale" for key in module.weight_names}
            if any(f"{name}.{key}" in missing for key in module.weight_names):
                self.keep_float(model, name)  # for transformers to initialize
            elif self.pre_quantized:
                require_scales(name, [key for key in module.weight_names if f"{name}.{key}_scale" in missing])
            missing -= scales
        return [key for key in missing_keys if key in missing]

    def create_quantized_param(self, model, param_value: Tensor, param_name: str, target_device, **kwargs) -> None:
        for name, values in self.quantized_parameters(model, param_name, param_value).items():
            module, key = owner(model, name)
            setattr(module, key, frozen(values.to(target_device)))

    def _process_model_after_weight_loading(self, model, **kwargs):
        for _, module in packed_modules(model):
            for name in module.weight_names:
                if module._parameters[
                    name
                ].is_meta:  # on disk: accelerate casts what it reads to the dtype that it finds
                    module._parameters[name] = frozen(module._parameters[name].to(torch.uint8))
        return super()._process_model_after_weight_loading(model, **kwargs)
