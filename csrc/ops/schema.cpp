// Every op of the package, declared once. The meaning stands in torch_mtl4/ops, the memory contract beside this file.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(torch_mtl4, m) {
  m.def(
      "flash_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, str? causal=None, "
      "int window_left=-1, int window_right=-1, float? scale=None, float? softcap=None, Tensor? sinks=None, "
      "Tensor? alibi_slopes=None) -> (Tensor out, Tensor lse)");
  // Implemented in torch_mtl4/ops/flash_attention_grad.py; the last three results are empty where they are not wanted.
  m.def(
      "flash_attention_backward(Tensor? grad_out, Tensor? grad_lse, Tensor query, Tensor key, Tensor value, "
      "Tensor? attn_mask=None, str? causal=None, int window_left=-1, int window_right=-1, float? scale=None, "
      "float? softcap=None, Tensor? sinks=None, Tensor? alibi_slopes=None, bool mask_grad=False) -> "
      "(Tensor grad_query, Tensor grad_key, Tensor grad_value, Tensor grad_mask, Tensor grad_sinks, "
      "Tensor grad_alibi_slopes)");
  m.def("mxfp8_quantize(Tensor x, str scaling=\"rceil\") -> (Tensor data, Tensor scale)");
  m.def("mxfp8_dequantize(Tensor data, Tensor scale, ScalarType dtype) -> Tensor");
  m.def("mxfp8_linear(Tensor x, Tensor weight, Tensor weight_scale, Tensor? bias=None) -> Tensor");

  // A kernel of the user's own (torch_mtl4/custom), on MPS tensors only: a text of MSL 4.0 whose kernel takes the
  // tensors at buffers 0, 1, ... and behind them ints: of each tensor its sizes and then its strides, innermost first.
  m.def("run_metal(str kernel, str text, Tensor(a!)[] tensors, int[] grid, int[] threadgroup) -> ()");

  // What a GPU would run for such a call, as text (csrc/plan/plan.h); caps as parse_device_caps reads them.
  m.def(
      "flash_attention_plan(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, str? causal, int window_left, "
      "int window_right, float? scale, float? softcap, Tensor? sinks, Tensor? alibi_slopes, str caps) -> str");
  m.def("mxfp8_quantize_plan(Tensor x, str scaling, str caps) -> str");
  m.def("mxfp8_dequantize_plan(Tensor data, Tensor scale, ScalarType dtype, str caps) -> str");
  m.def("mxfp8_linear_plan(Tensor x, Tensor weight, Tensor weight_scale, Tensor? bias, str caps) -> str");

  // Implemented in csrc/runtime, where that is built.
  m.def("mps_status() -> str");
}
