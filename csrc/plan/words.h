// Small words that every plan uses.
#pragma once

#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace mtl4 {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The element type as MSL writes it; the last part of a kernel's name.
inline std::string type_name(torch::headeronly::ScalarType dtype) {
  using torch::headeronly::ScalarType;
  return dtype == ScalarType::Half ? "half" : dtype == ScalarType::BFloat16 ? "bfloat" : "float";
}

// Positions in a grid are 32-bit numbers on the GPU, also those of threads, of which a threadgroup has up to 2^10.
constexpr int64_t kMostGroups = int64_t{1} << 21;

// A grid of x by y threadgroups in parts that a GPU can count: f(first_x, first_y, groups_x, groups_y) for each.
template <typename F>
void for_each_grid(int64_t x, int64_t y, const F& f) {
  for (int64_t first_y = 0; first_y < y; first_y += kMostGroups)
    for (int64_t first_x = 0; first_x < x; first_x += kMostGroups)
      f(first_x, first_y, std::min(kMostGroups, x - first_x), std::min(kMostGroups, y - first_y));
}

}  // namespace mtl4
