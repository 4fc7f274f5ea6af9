// The plan of a call as text, for any machine: what the GPU of the given caps would run. Nothing is computed.
#include <torch/csrc/stable/library.h>

#include "ops/mxfp8.h"
#include "plan/mxfp8_dequantize.h"
#include "plan/mxfp8_quantize.h"

namespace mtl4 {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

std::string mxfp8_quantize_plan(const Tensor& x, std::string scaling, std::string caps) {
  return to_json(plan_mxfp8_quantize(check_mxfp8_quantize(x, scaling), parse_device_caps(caps)));
}

std::string mxfp8_dequantize_plan(const Tensor& data, const Tensor& scale, ScalarType dtype, std::string caps) {
  return to_json(plan_mxfp8_dequantize(check_mxfp8_dequantize(data, scale, dtype), parse_device_caps(caps)));
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(torch_mtl4, CPU, m) {
  m.impl("mxfp8_quantize_plan", TORCH_BOX(&mxfp8_quantize_plan));
  m.impl("mxfp8_dequantize_plan", TORCH_BOX(&mxfp8_dequantize_plan));
}

}  // namespace mtl4
