"""The "mtl4" quantization of transformers: its config, and what the quantizers for transformers 4 and 5 share.

Importing this file imports transformers. Packed modules are put into a model that is still empty, and weights are
quantized one by one as they come from the file: how they come is a matter of quantizer_v4.py and quantizer_v5.py.
"""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from torch_mtl4.nn.byte_weights import ByteWeights, check_scaling
from torch_mtl4.nn.convert import (
    Conversion,
    dequantize_linears,
    is_router,
    kind_of,
    matches,
    plan_conversions,
    replace_everywhere,
)

METHOD = "mtl4"


class Mtl4Config(QuantizationConfigMixin):
    """How the linears of a transformers model are quantized, and what a quantized checkpoint says about it.

    `from_pretrained(..., quantization_config=Mtl4Config())` quantizes a full-precision checkpoint while loading it.
    A checkpoint saved after that carries the config and needs none.

    Args:
        format: "mxfp8", the only one.
        modules_to_not_convert: modules to leave as they are, see `skip` of `torch_mtl4.nn.quantize_linears`. None
            leaves the output heads. After loading it lists every layer that was left, so that a reload does the same.
        scaling: see `torch_mtl4.mxfp8_quantize`.
        dequantize: load a quantized checkpoint into float weights. transformers 4 warns and ignores it there: call
            `model.dequantize()` after loading.

    Raises:
        NotImplementedError: another format.
        TypeError, ValueError: an argument of the wrong type or value.
    """

    def __init__(
        self,
        format: str = "mxfp8",
        modules_to_not_convert: list[str] | None = None,
        scaling: str = "rceil",
        dequantize: bool = False,
        **kwargs,
    ):
        unknown = kwargs.keys() - {"quant_method"}
        if unknown:
            raise TypeError(f"Mtl4Config: expected no further arguments, got {', '.join(sorted(unknown))}")
        if format != "mxfp8":
            raise NotImplementedError(f"Mtl4Config: expected format 'mxfp8', got {format!r}")
        if isinstance(modules_to_not_convert, str):
            raise TypeError(f"Mtl4Config: expected modules_to_not_convert a list, got {modules_to_not_convert!r}")
        self.quant_method = METHOD
        self.format = format
        self.modules_to_not_convert = None if modules_to_not_convert is None else list(modules_to_not_convert)
        self.scaling = check_scaling("Mtl4Config", scaling)
        self.dequantize = dequantize

    def get_loading_attributes(self) -> dict[str, Any]:
        """What a config passed to from_pretrained overrides in the config of a quantized checkpoint."""
        return {"dequantize": self.dequantize}

    def to_dict(self) -> dict[str, Any]:
        """What config.json keeps."""
        return {
            "quant_method": self.quant_method,
            "format": self.format,
            "modules_to_not_convert": self.modules_to_not_convert,
            "scaling": self.scaling,
        }

    def to_diff_dict(self) -> dict[str, Any]:
        """The same: there is no shorter form."""
        return self.to_dict()


class Mtl4Quantizer(HfQuantizer):
    """Quantizes on load, loads and saves quantized checkpoints, and dequantizes, for `Mtl4Config`.

    Attributes:
        conversions: what became of each layer of the model that was loaded.
    """

    requires_calibration = False
    quantization_config: Mtl4Config
    conversions: list[Conversion]

    def validate_environment(self, device_map=None, **kwargs) -> None:
        if self.pre_quantized:
            return
        if self.quantization_config.dequantize:
            raise ValueError("Mtl4Config: expected dequantize=True with a quantized checkpoint, got a float one")
        if isinstance(device_map, dict) and "disk" in device_map.values():
            raise ValueError(
                "Mtl4Config: expected a device_map without 'disk' while quantizing, because transformers reads weights "
                "on disk from the float checkpoint; quantize and save first, then load the quantized checkpoint"
            )

    def _process_model_before_weight_loading(self, model, **kwargs):
        skip = self.quantization_config.modules_to_not_convert
        if self.pre_quantized and skip is not None:
            self.conversions = _as_recorded(model, skip)
        else:
            self.conversions = plan_conversions(model, skip, self.tied_parameters(model))
        for name in [c.name for c in self.conversions if c.converted]:
            layer = model.get_submodule(name)
            packed = kind_of(layer).convert(layer, self.quantization_config.scaling)
            packed._is_hf_initialized = True  # transformers would draw normal numbers into the bytes
            self.prepare(packed)
            replace_everywhere(model, layer, packed)
        return model

    def tied_parameters(self, model) -> list[str]:
        """The names of parameters that are tied only after loading."""
        raise NotImplementedError

    def prepare(self, packed: ByteWeights) -> None:
        """Makes an empty packed module ready for the way this version of transformers fills it."""

    def param_needs_quantization(self, model, param_name: str, **kwargs) -> bool:
        if self.pre_quantized:
            return False
        module, name = owner(model, param_name)
        return isinstance(module, ByteWeights) and name in module.weight_names

    def quantized_parameters(self, model, param_name: str, value: Tensor) -> dict[str, Tensor]:
        """The bytes and the scales of a weight, by full name of the parameter."""
        module, _ = owner(model, param_name)
        return {param_name + suffix: tensor for suffix, tensor in module.quantized(value).items()}

    def keep_float(self, model, name: str) -> nn.Module:
        """Puts an empty float layer in place of a packed module for which the checkpoint has no weight."""
        packed = model.get_submodule(name)
        layer = packed.to("meta").dequantize()
        replace_everywhere(model, packed, layer)
        reason = "new: the checkpoint has no weight for it"
        self.conversions = [c._replace(reason=reason) if c.name == name else c for c in self.conversions]
        return layer

    def _process_model_after_weight_loading(self, model, **kwargs):
        config = self.quantization_config
        if config.dequantize:
            dequantize_linears(model)
            self.remove_quantization_config(model)
            return model
        if not self.pre_quantized:
            _release_files(model)
        kept = {c.name for c in self.conversions if not c.converted}
        config.modules_to_not_convert = sorted({*(config.modules_to_not_convert or ()), *kept})
        model.config.quantization_config = config
        return model

    def attached_to(self, model) -> None:
        """Does what loading would have done to a model that was quantized after it was loaded."""

    def _dequantize(self, model, dtype=None):
        # Saving a model turns the dtype of its config into a string.
        dequantize_linears(model, dtype=getattr(torch, dtype) if isinstance(dtype, str) else dtype)
        return model

    def is_serializable(self, safe_serialization=None) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        """Adapters on the frozen weights can be trained."""
        return True

    @property
    def is_compileable(self) -> bool:
        return True


def attach(model: nn.Module, conversions: list[Conversion], scaling: str) -> None:
    """Makes a transformers model that `quantize_linears` has converted one that can be saved, reloaded and dequantized.

    Without it save_pretrained would write bytes that nothing in config.json explains.
    """
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

    kept = sorted(c.name for c in conversions if not c.converted)
    config = Mtl4Config(modules_to_not_convert=kept, scaling=scaling)
    quantizer = AUTO_QUANTIZER_MAPPING[METHOD](config, pre_quantized=True)
    quantizer.conversions = conversions
    model.config.quantization_config = config
    model.hf_quantizer = quantizer
    model.quantization_method = METHOD
    model.is_quantized = True
    quantizer.attached_to(model)


def owner(model: nn.Module, parameter: str) -> tuple[nn.Module, str]:
    """The module that holds a parameter, and the parameter's name in it."""
    path, _, name = parameter.rpartition(".")
    return model.get_submodule(path), name


def packed_modules(model: nn.Module) -> list[tuple[str, ByteWeights]]:
    """The modules of a model that hold bytes, by name."""
    return [(name, module) for name, module in model.named_modules() if isinstance(module, ByteWeights)]


def _release_files(model: nn.Module) -> None:
    """Copies what was not quantized: as views of the mapped files it would keep the whole float checkpoint mapped."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu" and tensor.dtype != torch.uint8:
            tensor.data = tensor.data.clone()


def require_scales(name: str, missing: list[str]) -> None:
    """Raises if the checkpoint has weights of the module called name without their scales."""
    for key in missing:
        raise ValueError(f"Mtl4Config: expected {name}.{key}_scale beside {name}.{key}, got a checkpoint without it")


def _as_recorded(model: nn.Module, kept: list[str]) -> list[Conversion]:
    """The conversions that a checkpoint recorded: every layer but those it lists."""
    prefix = getattr(model, "base_model_prefix", "")
    conversions = []
    for name, module in model.named_modules():
        kind = kind_of(module)
        if kind is None:
            continue
        # The checkpoint may be that of a model with a head, whose names start with the name of the base model.
        is_kept = matches(name, kept) or matches(f"{prefix}.{name}", kept) or is_router(model, name)
        reason = kind.refuse(module) or ("kept in the checkpoint" if is_kept else None)
        conversions.append(Conversion(name, type(module).__name__, reason))
    return conversions


def register(auto) -> None:
    """Registers the config and the quantizer for this version of transformers with transformers.quantizers.auto."""
    if hasattr(HfQuantizer, "create_quantized_param"):
        from torch_mtl4.integrations.quantizer_v4 import Mtl4QuantizerV4 as Quantizer
    else:
        from torch_mtl4.integrations.quantizer_v5 import Mtl4QuantizerV5 as Quantizer

        # Only these configs override attributes of the checkpoint's config, here dequantize.
        if Mtl4Config not in auto.LOADING_ATTRIBUTES_CONFIG_TYPES:
            auto.LOADING_ATTRIBUTES_CONFIG_TYPES += (Mtl4Config,)
    auto.AUTO_QUANTIZATION_CONFIG_MAPPING[METHOD] = Mtl4Config
    auto.AUTO_QUANTIZER_MAPPING[METHOD] = Quantizer


# Importing this file first imports the module to register with, before there is anything here to be registered.
if "transformers.quantizers.auto" in sys.modules:
    register(sys.modules["transformers.quantizers.auto"])
