// Small words that every plan uses.
#pragma once

#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace mtl4 {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The element type as MSL writes it; the last part of a kernel's name.
inline std::string type_name(torch::headeronly::ScalarType dtype) {
  using torch::headeronly::ScalarType;
  return dtype == ScalarType::Half ? "half" : dtype == ScalarType::BFloat16 ? "bfloat" : "float";
}

}  // namespace mtl4
