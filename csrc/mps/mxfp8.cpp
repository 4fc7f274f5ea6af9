// MPS implementations of the mxfp8 ops: contract, allocation, plan, run.
#include "ops/mxfp8.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "ops/shape.h"
#include "plan/mxfp8_dequantize.h"
#include "plan/mxfp8_linear.h"
#include "plan/mxfp8_quantize.h"
#include "runtime/run.h"

namespace mtl4::mps {
namespace {

using runtime::device_caps;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

std::tuple<Tensor, Tensor> mxfp8_quantize(const Tensor& x, std::string scaling) {
  const Mxfp8CodecProblem p = check_mxfp8_quantize(x, scaling);
  const Tensor dense = torch::stable::contiguous(x);
  Tensor data = torch::stable::new_empty(x, with_last(x, p.k), ScalarType::Byte);
  Tensor scale = torch::stable::new_empty(x, with_last(x, p.blocks()), ScalarType::Byte);
  if (data.numel() > 0)
    runtime::run(plan_mxfp8_quantize(p, device_caps(data)), {{"x", dense}, {"data", data}, {"scale", scale}});
  return {data, scale};
}

Tensor mxfp8_dequantize(const Tensor& data, const Tensor& scale, ScalarType dtype) {
  const Mxfp8CodecProblem p = check_mxfp8_dequantize(data, scale, dtype);
  const Tensor dense_data = torch::stable::contiguous(data), dense_scale = torch::stable::contiguous(scale);
  Tensor out = torch::stable::new_empty(data, with_last(data, p.k), dtype);
  if (out.numel() > 0)
    runtime::run(plan_mxfp8_dequantize(p, device_caps(out)),
                 {{"data", dense_data}, {"scale", dense_scale}, {"out", out}});
  return out;
}

Tensor mxfp8_linear(const Tensor& x, const Tensor& weight_, const Tensor& weight_scale_, std::optional<Tensor> bias) {
  check_mxfp8_linear(x, weight_, weight_scale_, bias);
  const Tensor weight = rows_dense(weight_), weight_scale = rows_dense(weight_scale_);
  const Mxfp8LinearProblem p = check_mxfp8_linear(x, weight, weight_scale, bias);
  const Tensor dense_x = torch::stable::contiguous(x);
  Tensor out = torch::stable::new_empty(x, with_last(x, p.n));
  if (out.numel() > 0)
    runtime::run(plan_mxfp8_linear(p, bias.has_value(), device_caps(out)),
                 {{"x", dense_x}, {"weight", weight}, {"weight_scale", weight_scale}, {"bias", bias}, {"out", out}});
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(torch_mtl4, MPS, m) {
  m.impl("mxfp8_quantize", TORCH_BOX(&mxfp8_quantize));
  m.impl("mxfp8_dequantize", TORCH_BOX(&mxfp8_dequantize));
  m.impl("mxfp8_linear", TORCH_BOX(&mxfp8_linear));
}

}  // namespace mtl4::mps
