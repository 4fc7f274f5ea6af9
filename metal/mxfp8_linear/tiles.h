// Tiles of x and of the weight in threadgroup memory, one block of 32 along k at a time, for many rows of x.
//
// The weight's tile holds true weights: as bfloats all of them are exact, but for blocks of extreme scales, whose sums
// are to be multiplied by what is left of the scale.
#pragma once

#include "mxfp8_linear/words.h"

constant constexpr int kTileColumns = 64;  // of out: rows of the weight
constant constexpr int kTileThreads = 128;
constant constexpr int kTileSimdgroups = kTileThreads / 32;

// Beside float x the weight has to be float as well: the products of matrices take no other pair.
template <typename T>
struct TileWeight {
  using type = bfloat;
};
template <>
struct TileWeight<float> {
  using type = float;
};

// What is left of the scales of one tile.
struct TileScales {
  float rest[kTileColumns];
  uint any_rest[kTileSimdgroups];
};

// Rows m .. m + kRows and columns k .. k + 32 of x; zeros beyond its edges.
template <int kRows, int kStride, typename T>
void load_x_tile(threadgroup T* tile, device const T* x, ParamsRef p, long m, long k, uint thread_index) {
  constexpr int kPerThread = 8, kThreadsPerRow = kMxBlock / kPerThread, kRowsAtOnce = kTileThreads / kThreadsPerRow;
  const int column = int(thread_index) % kThreadsPerRow * kPerThread;
  for (int row = int(thread_index) / kThreadsPerRow; row < kRows; row += kRowsAtOnce) {
    const long left = m + row < p.m ? p.k - k - column : 0;
#pragma clang loop unroll(full)
    for (int i = 0; i < kPerThread; ++i)
      tile[row * kStride + column + i] = i < left ? x[(m + row) * p.k + k + column + i] : T(0);
  }
}

// Rows n .. n + kTileColumns of the weight, columns k .. k + 32.
template <int kStride, typename W>
void load_weight_tile(threadgroup W* tile, threadgroup TileScales& scales, device const uchar* weight,
                      device const uchar* scale, ParamsRef p, long n, long k, uint thread_index) {
  const int row = int(thread_index) / 2, column = int(thread_index) % 2 * kCodesAtOnce;
  const bool inside = n + row < p.n;
  const uint4 codes =
      inside ? load_codes(weight + (n + row) * p.weight_stride + k + column, p.k - k - column) : uint4(0);
  const MxScale block(inside ? scale[(n + row) * p.scale_stride + k / kMxBlock] : uchar(127));
#pragma clang loop unroll(full)
  for (int i = 0; i < kCodesAtOnce; ++i)
    tile[row * kStride + column + i] = W(decode_e4m3(codes[i / 4] >> (i % 4 * 8), block.exponent));
  if (column == 0) scales.rest[row] = block.rest;
  const bool any_rest = simd_any(block.has_rest());
  if (thread_index % 32 == 0) scales.any_rest[thread_index / 32] = any_rest;
}

// Whether a column of the tile has a rest other than 1; the same for all threads.
inline bool any_rest(threadgroup const TileScales& scales) {
  uint any = 0;
  for (int i = 0; i < kTileSimdgroups; ++i) any |= scales.any_rest[i];
  return any != 0;
}
