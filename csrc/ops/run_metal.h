// The memory contract of run_metal.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace mtl4 {

struct RunMetalProblem {
  std::vector<int32_t> layout;  // of each tensor its sizes and then its strides, innermost first
  std::array<int64_t, 3> grid, threadgroup;
};

// Throws if a tensor is not within its storage, or sizes do not fit what the kernel is told them in.
RunMetalProblem check_run_metal(const std::string& kernel, const std::vector<torch::stable::Tensor>& tensors,
                                const std::vector<int64_t>& grid, const std::vector<int64_t>& threadgroup);

}  // namespace mtl4
