// Shapes of results and layouts of operands, for every backend.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <vector>

namespace mtl4 {

// The sizes of t with another last one.
inline std::vector<int64_t> with_last(const torch::stable::Tensor& t, int64_t last) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i + 1 < t.dim(); ++i) sizes.push_back(t.size(i));
  sizes.push_back(last);
  return sizes;
}

// Rows may lie anywhere; the elements within a row may not.
inline torch::stable::Tensor rows_dense(const torch::stable::Tensor& t) {
  const int64_t last = t.dim() - 1;
  return t.size(last) <= 1 || t.stride(last) == 1 ? t : torch::stable::contiguous(t);
}

}  // namespace mtl4
