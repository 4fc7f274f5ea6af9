// Shapes of results, for every backend that allocates them.
#pragma once

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

}  // namespace mtl4
