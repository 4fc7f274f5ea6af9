// Words of attention on cooperative tensors: the output's tiles, the rows' values, and weights on their way from one
// product to the next. They depend on no function constant, so that the self-check takes them as they are.
#pragma once

#include "common/online_softmax.h"
#include "tile/tensor_view.h"

// What compilers take of a left input in registers: one simdgroup, M of 16, N and K of 32, K static. K of the second
// product is the keys of a tile, so there are never fewer: the last tile starts so much earlier.
enum { kTensorRows = 16, kTensorKeys = 32, kTensorColumns = 32 };

// The output of a simdgroup's rows, N tiles of kTensorColumns columns. Recursive, since nobody says whether cooperative
// tensors may stand in an array.
template <typename T, class Product, class Weights, int N>
struct OutTiles {
  decltype(new_destination<Product, Weights, DeviceView<T>>()) tile =
      new_destination<Product, Weights, DeviceView<T>>();
  OutTiles<T, Product, Weights, N - 1> rest;

  void clear() thread {
    fill(tile, 0);
    rest.clear();
  }

  template <class Rows>
  void scale(thread Rows& factors) thread {
    for (auto it = tile.begin(); it != tile.end(); it++)
      if (tile.is_valid_element(it)) *it *= *factors.map_iterator(it);
    rest.scale(factors);
  }

  // `columns` of value are left from here on.
  void add(thread Weights& weights, device const T* value, long row_stride, int columns) thread {
    if (columns <= 0) return;
    DeviceView<T> values = view_of(value, metal::min(columns, int(kTensorColumns)), kTensorKeys, row_stride);
    Product product;
    product.run(weights, values, tile);
    rest.add(weights, value + kTensorColumns, row_stride, columns - kTensorColumns);
  }

  template <class Rows>
  void store(thread Rows& factors, device T* out, long row_stride, int rows, int columns) thread {
    for (auto it = tile.begin(); it != tile.end(); it++) {
      if (!tile.is_valid_element(it)) continue;
      const auto index = it.get_multidimensional_index();
      if (index[0] < columns && index[1] < rows)
        out[index[1] * row_stride + index[0]] = T(softmax_output(*it, *factors.map_iterator(it)));
    }
    rest.store(factors, out + kTensorColumns, row_stride, rows, columns - kTensorColumns);
  }
};
template <typename T, class Product, class Weights>
struct OutTiles<T, Product, Weights, 0> {
  void clear() thread {}
  template <class Rows>
  void scale(thread Rows&) thread {}
  void add(thread Weights&, device const T*, long, int) thread {}
  template <class Rows>
  void store(thread Rows&, device T*, long, int, int) thread {}
};

// Logits become weights relative to the rows' maxima.
template <class Tile, class Rows>
inline void form_weights(thread Tile& tile, thread Rows& row_max) {
  for (auto it = tile.begin(); it != tile.end(); it++)
    if (tile.is_valid_element(it)) *it = softmax_weight(*it, *row_max.map_iterator(it));
}

// The weights in the type of the values, as a left input: element by element where both lie alike, else through memory.
template <typename T, class Tile, class Weights>
inline void to_left_input(thread Tile& tile, thread Weights& weights, bool alike, threadgroup T* memory) {
  if (alike) {
#pragma clang loop unroll(full)
    for (int i = 0; i < tile.get_capacity(); ++i)
      if (tile.is_valid_element(i)) weights[i] = T(tile[i]);
    return;
  }
  for (int i = 0; i < tile.get_capacity(); ++i) {
    if (!tile.is_valid_element(i)) continue;
    const auto index = tile.get_multidimensional_index(i);
    memory[index[1] * kTensorKeys + index[0]] = T(tile[i]);
  }
  metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  weights.load(ThreadgroupView<T>(memory, metal::dextents<int, 2>(kTensorKeys, kTensorRows)));
  metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
}
