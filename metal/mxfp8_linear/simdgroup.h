// Many rows of x on simdgroup_matrix: products of floats, on every Apple GPU.
#pragma once

#include <metal_simdgroup_matrix>

#include "mxfp8_linear/tiles.h"

// Which two elements of an 8 x 8 matrix a lane holds. Read from a matrix whose elements say where they are, since it is
// documented nowhere.
struct MatrixPlace {
  int row[2], column[2];

  // `ramp` holds 0 to 63.
  explicit MatrixPlace(threadgroup const float* ramp) {
    simdgroup_float8x8 numbers;
    simdgroup_load(numbers, ramp, 8);
#pragma clang loop unroll(full)
    for (int i = 0; i < 2; ++i) {
      const int number = int(numbers.thread_elements()[i]);
      row[i] = number / 8;
      column[i] = number % 8;
    }
  }
};

// An 8 x 8 matrix of floats from a tile of another type; `place` are a lane's two elements in it.
template <typename E>
simdgroup_float8x8 load_matrix(threadgroup const E* tile, int2 place) {
  simdgroup_float8x8 matrix;
  matrix.thread_elements()[0] = float(tile[place.x]);
  matrix.thread_elements()[1] = float(tile[place.y]);
  return matrix;
}

// kRows rows of out by kTileColumns columns, shared by 2 x 2 simdgroups.
template <int kRows, typename T>
struct SimdgroupTiles {
  using W = typename TileWeight<T>::type;
  static constant constexpr int kXStride = kMxBlock + 16 / sizeof(T), kWStride = kMxBlock + 16 / sizeof(W);
  static constant constexpr int kDown = kRows / 16, kAcross = kTileColumns / 16;  // matrices of a simdgroup
  T x[kRows * kXStride];
  W weight[kTileColumns * kWStride];
  TileScales scales;
  float ramp[64];
};

template <int kRows, typename T>
void matmul_simdgroup(device const T* x, device const uchar* weight, device const uchar* scale, device const T* bias,
                      device T* out, ParamsRef p, threadgroup SimdgroupTiles<kRows, T>& tiles, uint2 group,
                      uint simdgroup, uint lane) {
  using Tiles = SimdgroupTiles<kRows, T>;
  constexpr int kDown = Tiles::kDown, kAcross = Tiles::kAcross;
  const uint thread_index = simdgroup * 32 + lane;
  const long m0 = p.first_row + long(group.y) * kRows, n0 = p.first_column + long(group.x) * kTileColumns;
  const int down = int(simdgroup) / 2 * (kDown * 8), across = int(simdgroup) % 2 * (kAcross * 8);

  if (thread_index < 64) tiles.ramp[thread_index] = thread_index;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const MatrixPlace place(tiles.ramp);

  const int2 x_place = int2(place.row[0] * Tiles::kXStride + place.column[0],
                            place.row[1] * Tiles::kXStride + place.column[1]);
  const int2 weight_place = int2(place.column[0] * Tiles::kWStride + place.row[0],
                                 place.column[1] * Tiles::kWStride + place.row[1]);
  threadgroup const T* my_x = tiles.x + down * Tiles::kXStride;
  threadgroup const typename Tiles::W* my_weight = tiles.weight + across * Tiles::kWStride;

  simdgroup_float8x8 sums[kDown][kAcross];
#pragma clang loop unroll(full)
  for (int i = 0; i < kDown; ++i)
#pragma clang loop unroll(full)
    for (int j = 0; j < kAcross; ++j) sums[i][j] = make_filled_simdgroup_matrix<float, 8>(0.0f);
  for (long k = 0; k < p.k; k += kMxBlock) {
    // The tiles before these have been read.
    if (k > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    load_x_tile<kRows, Tiles::kXStride>(tiles.x, x, p, m0, k, thread_index);
    load_weight_tile<Tiles::kWStride>(tiles.weight, tiles.scales, weight, scale, p, n0, k, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (!any_rest(tiles.scales)) {
#pragma clang loop unroll(full)
      for (int kk = 0; kk < kMxBlock; kk += 8) {
        simdgroup_float8x8 b[kAcross];
#pragma clang loop unroll(full)
        for (int j = 0; j < kAcross; ++j) b[j] = load_matrix(my_weight + j * 8 * Tiles::kWStride + kk, weight_place);
#pragma clang loop unroll(full)
        for (int i = 0; i < kDown; ++i) {
          const simdgroup_float8x8 a = load_matrix(my_x + i * 8 * Tiles::kXStride + kk, x_place);
#pragma clang loop unroll(full)
          for (int j = 0; j < kAcross; ++j) simdgroup_multiply_accumulate(sums[i][j], a, b[j], sums[i][j]);
        }
      }
      continue;
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < kDown; ++i)
#pragma clang loop unroll(full)
      for (int j = 0; j < kAcross; ++j) {
        simdgroup_float8x8 product = make_filled_simdgroup_matrix<float, 8>(0.0f);
#pragma clang loop unroll(full)
        for (int kk = 0; kk < kMxBlock; kk += 8) {
          const simdgroup_float8x8 a = load_matrix(my_x + i * 8 * Tiles::kXStride + kk, x_place);
          const simdgroup_float8x8 b = load_matrix(my_weight + j * 8 * Tiles::kWStride + kk, weight_place);
          simdgroup_multiply_accumulate(product, a, b, product);
        }
#pragma clang loop unroll(full)
        for (int e = 0; e < 2; ++e)
          sums[i][j].thread_elements()[e] +=
              product.thread_elements()[e] * tiles.scales.rest[across + j * 8 + place.column[e]];
      }
  }

#pragma clang loop unroll(full)
  for (int i = 0; i < kDown; ++i)
#pragma clang loop unroll(full)
    for (int j = 0; j < kAcross; ++j)
#pragma clang loop unroll(full)
      for (int e = 0; e < 2; ++e)
        store_with_bias(out, bias, p, m0 + down + i * 8 + place.row[e], n0 + across + j * 8 + place.column[e],
                        sums[i][j].thread_elements()[e]);
}
