// The plan of a call as text, for any machine: what the GPU of the given caps would run. Nothing is computed.
#include <torch/csrc/stable/library.h>

#include "ops/flash_attention.h"
#include "ops/mxfp8.h"
#include "plan/flash_attention.h"
#include "plan/mxfp8_dequantize.h"
#include "plan/mxfp8_linear.h"
#include "plan/mxfp8_quantize.h"

namespace mtl4 {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

std::string flash_attention_plan(const Tensor& query, const Tensor& key, const Tensor& value,
                                 std::optional<Tensor> attn_mask, std::optional<std::string> causal,
                                 int64_t window_left, int64_t window_right, std::optional<double> scale,
                                 std::optional<double> softcap, std::optional<Tensor> sinks,
                                 std::optional<Tensor> alibi_slopes, std::string caps) {
  const FlashAttentionArgs args{query,        key,   value,   attn_mask, causal,      window_left,
                                window_right, scale, softcap, sinks,     alibi_slopes};
  return to_json(plan_flash_attention(check_flash_attention(args), parse_device_caps(caps)));
}

std::string mxfp8_quantize_plan(const Tensor& x, std::string scaling, std::string caps) {
  return to_json(plan_mxfp8_quantize(check_mxfp8_quantize(x, scaling), parse_device_caps(caps)));
}

std::string mxfp8_dequantize_plan(const Tensor& data, const Tensor& scale, ScalarType dtype, std::string caps) {
  return to_json(plan_mxfp8_dequantize(check_mxfp8_dequantize(data, scale, dtype), parse_device_caps(caps)));
}

std::string mxfp8_linear_plan(const Tensor& x, const Tensor& weight, const Tensor& weight_scale,
                              std::optional<Tensor> bias, std::string caps) {
  const Mxfp8LinearProblem p = check_mxfp8_linear(x, weight, weight_scale, bias);
  return to_json(plan_mxfp8_linear(p, bias.has_value(), parse_device_caps(caps)));
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(torch_mtl4, CPU, m) {
  m.impl("flash_attention_plan", TORCH_BOX(&flash_attention_plan));
  m.impl("mxfp8_quantize_plan", TORCH_BOX(&mxfp8_quantize_plan));
  m.impl("mxfp8_dequantize_plan", TORCH_BOX(&mxfp8_dequantize_plan));
  m.impl("mxfp8_linear_plan", TORCH_BOX(&mxfp8_linear_plan));
}

}  // namespace mtl4
