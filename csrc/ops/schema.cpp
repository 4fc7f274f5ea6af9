// Every op of the package, declared once. The meaning stands in torch_mtl4/ops, the memory contract beside this file.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(torch_mtl4, m) {
  m.def(
      "flash_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, str? causal=None, "
      "int window_left=-1, int window_right=-1, float? scale=None, float? softcap=None, Tensor? sinks=None, "
      "Tensor? alibi_slopes=None) -> (Tensor out, Tensor lse)");
  m.def("mxfp8_quantize(Tensor x, str scaling=\"rceil\") -> (Tensor data, Tensor scale)");
  m.def("mxfp8_dequantize(Tensor data, Tensor scale, ScalarType dtype) -> Tensor");
  m.def("mxfp8_linear(Tensor x, Tensor weight, Tensor weight_scale, Tensor? bias=None) -> Tensor");
}
