"""Loads the compiled library. The only file that writes torch.ops.torch_mtl4."""

from importlib.util import find_spec

import torch


def _load() -> str:
    spec = find_spec("torch_mtl4._C")
    if spec is None or spec.origin is None:
        raise ImportError(
            "torch_mtl4: the compiled library is missing; install the package with "
            "`pip install --no-build-isolation .` (or build in place with `python setup.py build_ext --inplace`)"
        )
    torch.ops.load_library(spec.origin)
    return spec.origin


LIBRARY_PATH = _load()

# Owns what Python registers: fake kernels, gradients, autocast rules.
LIBRARY = torch.library.Library("torch_mtl4", "FRAGMENT")

flash_attention = torch.ops.torch_mtl4.flash_attention.default
flash_attention_backward = torch.ops.torch_mtl4.flash_attention_backward.default
mxfp8_quantize = torch.ops.torch_mtl4.mxfp8_quantize.default
mxfp8_dequantize = torch.ops.torch_mtl4.mxfp8_dequantize.default
mxfp8_linear = torch.ops.torch_mtl4.mxfp8_linear.default
flash_attention_plan = torch.ops.torch_mtl4.flash_attention_plan.default
mxfp8_quantize_plan = torch.ops.torch_mtl4.mxfp8_quantize_plan.default
mxfp8_dequantize_plan = torch.ops.torch_mtl4.mxfp8_dequantize_plan.default
mxfp8_linear_plan = torch.ops.torch_mtl4.mxfp8_linear_plan.default
run_metal = torch.ops.torch_mtl4.run_metal.default
mps_status = torch.ops.torch_mtl4.mps_status.default
