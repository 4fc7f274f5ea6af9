// Rows of bfloats as halves, exactly: each multiplied by a power of two, if all of its values then are normal halves.
//
// Half's normal numbers span 30 binades. A row of finite values that fit in is narrowed; any other row is marked as
// wide, and computed from its bfloats. So no value is rounded, flushed or made infinite.
#pragma once

#include "mxfp8_linear/gemv.h"

constant constexpr int kNarrowThreads = 256;

struct ExponentRange {
  int low[kNarrowThreads / 32], high[kNarrowThreads / 32];
};

// Of one row. `range` is shared by the threadgroup; factor undoes the power of two.
inline void narrow_row(device const bfloat* x, device half* narrowed, device float* factor, device atomic_uint* wide,
                       ParamsRef p, threadgroup ExponentRange& range, long row, uint thread_index) {
  constexpr int kAll = 255, kHighest = 15, kLowest = -14;  // exponent of infinity and NaN; of half's normal numbers
  device const ushort* bits = reinterpret_cast<device const ushort*>(x + row * p.k);
  int low = kAll, high = 0;
  for (long k = thread_index; k < p.k; k += kNarrowThreads) {
    const int magnitude = bits[k] & 0x7fff, exponent = magnitude >> 7;
    low = magnitude == 0 ? low : min(low, exponent);
    high = max(high, exponent);
  }
  low = simd_min(low);
  high = simd_max(high);
  if (thread_index % 32 == 0) {
    range.low[thread_index / 32] = low;
    range.high[thread_index / 32] = high;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = 0; i < kNarrowThreads / 32; ++i) {
    low = min(low, range.low[i]);
    high = max(high, range.high[i]);
  }

  // Multiplying by more than 2^126 would need a factor that is no normal float.
  const int up = high == 0 ? 0 : min(kHighest - (high - 127), 126);
  const bool fits = high < kAll && low > 0 && low - 127 + up >= kLowest;
  if (thread_index == 0) {
    factor[row] = as_type<float>(uint(127 - up) << 23);
    atomic_store_explicit(wide + row, fits ? 0u : 1u, memory_order_relaxed);
  }
  for (long k = thread_index; k < p.k; k += kNarrowThreads) {
    const uint value = bits[k], magnitude = value & 0x7fff;
    const uint half_bits = uint(int(magnitude >> 7) - 127 + up + 15) << 10 | (magnitude & 0x7f) << 3;
    const uint sign = value & 0x8000;
    narrowed[row * p.k + k] = as_type<half>(ushort(fits ? sign | (magnitude == 0 ? 0 : half_bits) : 0));
  }
}

// Computes the rows that are marked as wide from their bfloats, over what was stored before. One row after the other,
// since there are few.
inline void wide_rows(device const bfloat* x, device const uchar* weight, device const uchar* scale,
                      device const bfloat* bias, device bfloat* out, device const uint* wide, ParamsRef p,
                      threadgroup float* sums, uint group, uint simdgroup, uint lane) {
  for (long m = 0; m < p.m; m += 32) {
    uint marked = simd_or(m + lane < p.m && wide[m + lane] != 0 ? 1u << lane : 0u);
    while (marked != 0) {
      gemv<1>(x, weight, scale, bias, out, p, m + long(ctz(marked)), sums, group, simdgroup, lane);
      // The sums of this row have been read.
      if (split > 1) threadgroup_barrier(mem_flags::mem_threadgroup);
      marked &= marked - 1;
    }
  }
}
