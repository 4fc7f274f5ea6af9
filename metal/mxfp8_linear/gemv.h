// A few rows of x: every weight byte is read once, and the time is the memory's.
//
// A simdgroup owns kColumns rows of the weight, a lane takes 16 codes of each at a time. Where there are too few rows of
// the weight to keep the memory busy, `split` simdgroups of a threadgroup divide k among themselves.
#pragma once

#include "mxfp8_linear/words.h"

constant constexpr int kGemvMostSimdgroups = 8;

// Of a threadgroup.
inline int gemv_simdgroups() { return split > 1 ? split : 2; }

// Rows of the weight for each simdgroup, for M rows of x: what the registers hold.
template <int M>
constexpr int gemv_columns() {
  return M > 4 ? 2 : 4;
}

template <int M>
constexpr int gemv_sums() {
  return M * gemv_columns<M>();
}

// Rows first_row .. first_row + M of out, as far as they exist. `sums` holds gemv_sums<M>() floats a simdgroup.
template <int M, typename T>
void gemv(device const T* x, device const uchar* weight, device const uchar* scale, device const T* bias, device T* out,
          ParamsRef p, long first_row, threadgroup float* sums, uint group, uint simdgroup, uint lane) {
  constexpr int kColumns = gemv_columns<M>(), kSums = gemv_sums<M>();
  const int team = int(simdgroup) / split, part = int(simdgroup) % split;
  const long first = p.first_column + (long(group) * (gemv_simdgroups() / split) + team) * kColumns;

  float total[M][kColumns] = {};
  for (long k = (part * 32 + long(lane)) * kCodesAtOnce; k < p.k; k += split * 32 * kCodesAtOnce) {
    uint4 codes[kColumns];
    uint exponent[kColumns];
    float rest[kColumns];
#pragma clang loop unroll(full)
    for (int c = 0; c < kColumns; ++c) {
      const long n = min(first + c, p.n - 1);
      codes[c] = load_codes(weight + n * p.weight_stride + k, p.k - k);
      const MxScale block(scale[n * p.scale_stride + k / kMxBlock]);
      exponent[c] = block.exponent;
      rest[c] = block.rest;
    }
    float sum[M][kColumns] = {};
#pragma clang loop unroll(full)
    for (int word = 0; word < kCodesAtOnce / 4; ++word) {
      const long at = k + 4 * word;
      float4 values[M];
#pragma clang loop unroll(full)
      for (int m = 0; m < M; ++m) values[m] = load_four(x + min(first_row + m, p.m - 1) * p.k + at, p.k - at);
#pragma clang loop unroll(full)
      for (int c = 0; c < kColumns; ++c) {
        const float4 weights = decode_four(codes[c][word], exponent[c]);
#pragma clang loop unroll(full)
        for (int m = 0; m < M; ++m) sum[m][c] += dot(values[m], weights);
      }
    }
#pragma clang loop unroll(full)
    for (int m = 0; m < M; ++m)
#pragma clang loop unroll(full)
      for (int c = 0; c < kColumns; ++c) total[m][c] += sum[m][c] * rest[c];
  }

  // Each of the first lanes keeps one sum.
  float mine = 0;
#pragma clang loop unroll(full)
  for (int m = 0; m < M; ++m)
#pragma clang loop unroll(full)
    for (int c = 0; c < kColumns; ++c) {
      const float sum = simd_sum(total[m][c]);
      if (int(lane) == m * kColumns + c) mine = sum;
    }
  const bool has_sum = int(lane) < kSums;
  if (split > 1) {
    if (has_sum) sums[int(simdgroup) * kSums + int(lane)] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (part != 0) return;
    for (int i = 1; has_sum && i < split; ++i) mine += sums[(int(simdgroup) + i) * kSums + int(lane)];
  }
  if (has_sum) store_with_bias(out, bias, p, first_row + int(lane) / kColumns, first + int(lane) % kColumns, mine);
}
