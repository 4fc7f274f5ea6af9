// An 8x8 simdgroup_matrix, lane by lane. A lane holds two neighbours of one row; which, Apple does not say, but every
// GPU so far has one answer, which MLX and PyTorch rely on too.
#pragma once

#include <metal_stdlib>

template <typename T>
using Fragment = metal::simdgroup_matrix<T, 8, 8>;

// The row of a lane, and the first of its two columns.
struct FragmentPlace {
  int row, column;

  explicit FragmentPlace(uint lane) {
    const uint quad = lane / 4;
    row = int((quad & 4) + lane / 2 % 4);
    column = int((quad & 2) * 2 + lane % 2 * 2);
  }
};

// Over the four lanes that share a row.
inline float fragment_row_max(float x) {
  x = metal::max(x, metal::simd_shuffle_xor(x, 1));
  return metal::max(x, metal::simd_shuffle_xor(x, 8));
}
inline float fragment_row_sum(float x) {
  x += metal::simd_shuffle_xor(x, 1);
  return x + metal::simd_shuffle_xor(x, 8);
}

// Rows [0, rows) and columns [column, columns) of memory; zero elsewhere.
template <typename T>
inline Fragment<T> load_fragment(device const T* from, long row_stride, int rows, int column, int columns,
                                 FragmentPlace place) {
  Fragment<T> f;
  for (int i = 0; i < 2; ++i) {
    const int c = column + place.column + i;
    f.thread_elements()[i] = place.row < rows && c < columns ? from[place.row * row_stride + c] : T(0);
  }
  return f;
}
