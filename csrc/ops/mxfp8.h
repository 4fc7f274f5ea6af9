// The memory contracts of the mxfp8 ops.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace mtl4 {

constexpr int64_t kMxBlock = 32;
enum class ScalingMode { floor, rceil, ceil, even };

// x is [rows, k] after flattening, dense; weight rows are weight_stride bytes apart, scale rows weight_scale_stride.
struct Mxfp8LinearProblem {
  torch::headeronly::ScalarType dtype;
  int64_t m, n, k;
  int64_t weight_stride, weight_scale_stride;
  int64_t bias_stride = 0;
};

// rows of k values, each row with ceil(k / 32) scale bytes.
struct Mxfp8CodecProblem {
  torch::headeronly::ScalarType dtype;
  int64_t rows, k;
  ScalingMode scaling = ScalingMode::rceil;
  int64_t blocks() const { return (k + kMxBlock - 1) / kMxBlock; }
};

Mxfp8CodecProblem check_mxfp8_quantize(const torch::stable::Tensor& x, const std::string& scaling);
Mxfp8CodecProblem check_mxfp8_dequantize(const torch::stable::Tensor& data, const torch::stable::Tensor& scale,
                                         torch::headeronly::ScalarType dtype);
Mxfp8LinearProblem check_mxfp8_linear(const torch::stable::Tensor& x, const torch::stable::Tensor& weight,
                                      const torch::stable::Tensor& weight_scale,
                                      const std::optional<torch::stable::Tensor>& bias);

}  // namespace mtl4
