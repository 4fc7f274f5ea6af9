// Tensors of matmul2d over memory of ours, and cooperative tensors that go from one matmul2d to the next.
#pragma once

#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>

template <typename T>
using DeviceView = metal::tensor<device T, metal::dextents<int, 2>, metal::tensor_inline>;
template <typename T>
using ThreadgroupView = metal::tensor<threadgroup T, metal::dextents<int, 2>, metal::tensor_inline>;

// Rows of memory, as an operand. The pointer is moved instead of slicing a larger tensor: slices wrap at 2 GiB, and went
// wrong on one early system. The table of element types has no const ones.
template <typename T>
inline DeviceView<T> view_of(device const T* from, int columns, int rows, long row_stride) {
  return DeviceView<T>(const_cast<device T*>(from), metal::dextents<int, 2>(columns, rows),
                       metal::array<int, 2>{1, int(row_stride)});
}

// A fresh destination: a function's result, since copies of cooperative tensors need macOS 27.
template <class Product, class Left, class Right>
inline auto new_destination() {
  Product product;
  return product.template get_destination_cooperative_tensor<Left, Right, float>();
}

template <class Tile>
inline void fill(thread Tile& tile, float value) {
#pragma clang loop unroll(full)
  for (int i = 0; i < tile.get_capacity(); ++i)
    if (tile.is_valid_element(i)) tile[i] = value;
}

// Does element i of both stand at the same place, for every i and every lane of the simdgroup?
template <class A, class B>
inline bool same_places(thread A& a, thread B& b) {
  bool same = a.get_capacity() == b.get_capacity();
  for (int i = 0; same && i < a.get_capacity(); ++i) {
    const bool valid = a.is_valid_element(i);
    same = valid == b.is_valid_element(i);
    if (!same || !valid) continue;
    const auto here = a.get_multidimensional_index(i), there = b.get_multidimensional_index(i);
    same = here[0] == there[0] && here[1] == there[1];
  }
  return metal::simd_all(same);
}
