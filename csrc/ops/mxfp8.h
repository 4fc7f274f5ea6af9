// The memory contracts of the mxfp8 ops.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <string>

#include "ops/mxfp8_problem.h"

namespace mtl4 {

Mxfp8CodecProblem check_mxfp8_quantize(const torch::stable::Tensor& x, const std::string& scaling);
Mxfp8CodecProblem check_mxfp8_dequantize(const torch::stable::Tensor& data, const torch::stable::Tensor& scale,
                                         torch::headeronly::ScalarType dtype);
Mxfp8LinearProblem check_mxfp8_linear(const torch::stable::Tensor& x, const torch::stable::Tensor& weight,
                                      const torch::stable::Tensor& weight_scale,
                                      const std::optional<torch::stable::Tensor>& bias);

}  // namespace mtl4
