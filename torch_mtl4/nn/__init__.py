"""Modules that hold block-quantized weights, and the conversion of a model to and from them."""

from torch_mtl4.nn.convert import Conversion, dequantize_linears, quantize_linears
from torch_mtl4.nn.mxfp8_linear import MXFP8Linear
from torch_mtl4.nn.quantized_linear import QuantizedLinear

__all__ = ["Conversion", "MXFP8Linear", "QuantizedLinear", "dequantize_linears", "quantize_linears"]
