"""Block-quantized linears and flash attention for PyTorch on Apple Silicon, with a fast CPU backend."""

import importlib

from torch_mtl4 import nn
from torch_mtl4.backends import backend_status
from torch_mtl4.integrations.names import register as _register_attention
from torch_mtl4.integrations.patching import patch, unpatch
from torch_mtl4.integrations.quantization import register as _register_quantizer
from torch_mtl4.integrations.report import report
from torch_mtl4.integrations.sdpa import disable, enable, enabled
from torch_mtl4.ops.flash_attention import flash_attention
from torch_mtl4.ops.mxfp8 import mxfp8_dequantize, mxfp8_linear, mxfp8_quantize
from torch_mtl4.ops.scaled_dot_product_attention import scaled_dot_product_attention

_register_attention()
_register_quantizer()

__version__ = "0.1.0"

__all__ = [
    "MetalKernel",
    "MetalParameter",
    "Mtl4Config",
    "TorchMetalKernel",
    "backend_status",
    "disable",
    "enable",
    "enabled",
    "flash_attention",
    "metal_kernel",
    "mxfp8_dequantize",
    "mxfp8_linear",
    "mxfp8_quantize",
    "nn",
    "patch",
    "report",
    "scaled_dot_product_attention",
    "unpatch",
]


# Imported when they are first asked for.
_LATER = {
    "MetalKernel": "torch_mtl4.custom",
    "MetalParameter": "torch_mtl4.custom.apple",
    "Mtl4Config": "torch_mtl4.integrations.quantizer",  # which imports transformers
    "TorchMetalKernel": "torch_mtl4.custom.apple",
    "metal_kernel": "torch_mtl4.custom",
}
_MODULES_LATER = ("custom", "export", "msl", "vision")


def __getattr__(name: str):
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name in _MODULES_LATER:
        return importlib.import_module(f"torch_mtl4.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
