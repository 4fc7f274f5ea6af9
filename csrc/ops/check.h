// Words for the contracts: an error names the op, the argument, what was expected and what came.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <string>

// Where this throws, the caller of the raw op gets a RuntimeError with exactly this text.
#define MTL4_CHECK(op, cond, argument, expected, got) \
  STD_TORCH_CHECK(cond, op, ": expected ", argument, " ", expected, ", got ", got)

namespace mtl4 {

inline std::string shape_string(const torch::stable::Tensor& t) {
  std::string s = "[";
  for (int64_t i = 0; i < t.dim(); ++i) s += (i ? ", " : "") + std::to_string(t.size(i));
  return s + "]";
}

inline std::string dtype_string(torch::headeronly::ScalarType t) { return torch::headeronly::toString(t); }

inline bool is_float(torch::headeronly::ScalarType t) {
  using torch::headeronly::ScalarType;
  return t == ScalarType::Float || t == ScalarType::Half || t == ScalarType::BFloat16;
}

}  // namespace mtl4
