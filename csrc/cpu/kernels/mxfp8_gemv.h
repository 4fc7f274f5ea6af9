// A few rows of x against the weight as it lies in memory: each weight byte is read once, and the time is the memory's.
//
// Per block the products are summed in float and then multiplied by the block's scale, so that every scale byte, subnormal
// and extreme ones included, means what it says.
#pragma once

#include "cpu/kernels/mxfp8_formats.h"

namespace mtl4::cpu::MTL4_ISA {

constexpr int kGemvRows = 8;

// x as floats: rows of `stride` floats, zeros behind column k.
struct FloatRows {
  const float* data;
  int64_t stride;
};

template <int M>
MTL4_INLINE void add_block(const uint8_t* codes, float scale, const float* x, int64_t stride, vf (&acc)[M]) {
  vf w[kBlockVectors];
  decode_e4m3(codes, w);
  const vf factor = splat(scale);
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    vf sum = w[0] * load(x + m * stride);
#pragma GCC unroll 8
    for (int i = 1; i < kBlockVectors; ++i) sum = fma(w[i], load(x + m * stride + i * kLanes), sum);
    acc[m] = fma(sum, factor, acc[m]);
  }
}

// y[m] = sum over k of x[m][k] * weight[k], for one row of the weight.
template <int M>
void dot_rows(FloatRows x, const uint8_t* weight, const uint8_t* scale, int64_t k, float (&y)[M]) {
  constexpr int kAhead = 2048;  // bytes: the hardware's prefetch stops at a page's end
  vf acc[M] = {};
  const int64_t full = k / kMxBlock;
  float scales[kLanes];
  for (int64_t b = 0; b < full; ++b) {
    if (b % kLanes == 0) {
      uint8_t bytes[kLanes] = {};
      std::memcpy(bytes, scale + b, full - b < kLanes ? full - b : kLanes);
      store(scales, decode_e8m0(bytes));
    }
    __builtin_prefetch(weight + b * kMxBlock + kAhead);
    add_block(weight + b * kMxBlock, scales[b % kLanes], x.data + b * kMxBlock, x.stride, acc);
  }
  if (k % kMxBlock != 0) {
    uint8_t codes[kMxBlock] = {};
    std::memcpy(codes, weight + full * kMxBlock, k % kMxBlock);
    add_block(codes, e8m0_to_float(scale[full]), x.data + full * kMxBlock, x.stride, acc);
  }
  const bool nan = has_e4m3_nan(weight, k);
  for (int m = 0; m < M; ++m) y[m] = nan ? __builtin_nanf("") : reduce_add(acc[m]) * kE4m3Unit;
}

}  // namespace mtl4::cpu::MTL4_ISA
