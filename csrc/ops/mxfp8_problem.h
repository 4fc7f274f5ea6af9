// What an mxfp8 op has to do once its arguments are known to be safe: sizes, strides and choices, no tensors.
#pragma once

#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>

namespace mtl4 {

constexpr int64_t kMxBlock = 32;
enum class ScalingMode { floor, rceil, ceil, even };

// x is [rows, k] after flattening, dense; weight rows are weight_stride bytes apart, scale rows weight_scale_stride.
struct Mxfp8LinearProblem {
  torch::headeronly::ScalarType dtype;
  int64_t m, n, k;
  int64_t weight_stride, weight_scale_stride;
  int64_t bias_stride = 0;
  int64_t weight_offset = 0, weight_scale_offset = 0;  // bytes from the start of their storage
};

// rows of k values, each row with ceil(k / 32) scale bytes.
struct Mxfp8CodecProblem {
  torch::headeronly::ScalarType dtype;
  int64_t rows, k;
  ScalingMode scaling = ScalingMode::rceil;
  int64_t blocks() const { return (k + kMxBlock - 1) / kMxBlock; }
};

}  // namespace mtl4
