// A tile of device memory, copied to threadgroup memory by the whole threadgroup.
#pragma once

#include <metal_stdlib>

// Elements from one row of a staged tile to the next: a little more than it holds, so that threads which read a column
// meet different banks.
template <typename T, int COLUMNS>
constexpr int staged_row() {
  return COLUMNS + 16 / int(sizeof(T));
}

// Four elements of memory that is aligned to one.
template <typename T>
struct PackedFour;
template <>
struct PackedFour<float> {
  using type = metal::packed_float4;
};
template <>
struct PackedFour<half> {
  using type = metal::packed_half4;
};
template <>
struct PackedFour<bfloat> {
  using type = metal::packed_bfloat4;
};

// Rows [0, rows) and columns [0, columns) of memory; zero elsewhere in the tile.
template <typename T, int ROWS, int COLUMNS, int THREADS>
inline void stage(device const T* from, long row_stride, int rows, int columns, threadgroup T* tile, uint thread_index) {
  constexpr int kRow = staged_row<T, COLUMNS>();
  for (int i = int(thread_index); i < ROWS * COLUMNS / 4; i += THREADS) {
    const int row = i / (COLUMNS / 4), column = i % (COLUMNS / 4) * 4;
    device const T* source = from + row * row_stride + column;
    threadgroup T* target = tile + row * kRow + column;
    if (row < rows && column + 4 <= columns) {
      const typename PackedFour<T>::type four = *(device const typename PackedFour<T>::type*)source;
      for (int j = 0; j < 4; ++j) target[j] = four[j];
    } else {
      for (int j = 0; j < 4; ++j) target[j] = row < rows && column + j < columns ? source[j] : T(0);
    }
  }
}
