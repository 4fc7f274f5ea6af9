// A few rows of x: every weight byte is read once, and the time is the memory's.
//
// A simdgroup takes kColumns rows of the weight, a lane 16 codes of each at a time. `split` simdgroups divide k among
// themselves, where there are too few rows of the weight to keep a large GPU busy.
#pragma once

#include "mxfp8_linear/words.h"

constant constexpr int kGemvSimdgroups = 8;

// Rows of the weight for each simdgroup, for M rows of x: what the registers hold.
template <int M>
constexpr int gemv_columns() {
  return M > 4 ? 2 : 4;
}

template <int M>
constexpr int gemv_sums() {
  return kGemvSimdgroups * M * gemv_columns<M>();
}

// Rows first_row .. first_row + M of out, as far as they exist. `sums` holds gemv_sums<M>() floats.
template <int M, typename T>
void gemv(device const T* x, device const uchar* weight, device const uchar* scale, device const T* bias, device T* out,
          ParamsRef p, long first_row, threadgroup float* sums, uint group, uint simdgroup, uint lane) {
  constexpr int kColumns = gemv_columns<M>();
  const int team = int(simdgroup) / split, part = int(simdgroup) % split;
  const long first_of_group = p.first_column + long(group) * (kGemvSimdgroups / split * kColumns);
  const long first = first_of_group + team * kColumns;

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

#pragma clang loop unroll(full)
  for (int m = 0; m < M; ++m)
#pragma clang loop unroll(full)
    for (int c = 0; c < kColumns; ++c) {
      const float sum = simd_sum(total[m][c]);
      if (lane == 0) sums[(simdgroup * M + m) * kColumns + c] = sum;
    }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const int columns = kGemvSimdgroups / split * kColumns, thread_index = int(simdgroup * 32 + lane);
  if (thread_index >= columns * M) return;
  const int column = thread_index % columns, m = thread_index / columns;
  float sum = 0;
  for (int i = 0; i < split; ++i)
    sum += sums[((column / kColumns * split + i) * M + m) * kColumns + column % kColumns];
  store_with_bias(out, bias, p, first_row + m, first_of_group + column, sum);
}
