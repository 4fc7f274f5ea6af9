// A few rows of x against the weight as it lies in memory: each weight byte is read once, and the time is the memory's.
//
// Per block the products are summed in float and then multiplied by the block's scale, so that every scale byte,
// subnormal and extreme ones included, means what it says.
#pragma once

#include "cpu/kernels/mxfp8_formats.h"

namespace mtl4::cpu::MTL4_ISA {

constexpr int kGemvRows = 8;

// x as floats: rows of `stride` floats, zeros behind column k. Row m is to be multiplied by unit[m] in the end.
struct FloatRows {
  float* data;
  int64_t stride;
  float unit[kGemvRows];
};

// A row takes the decoder's unit upon itself, so that results that are subnormal keep their bits; a row of huge values
// is made smaller, so that a block's sum cannot overflow before its scale makes it small.
template <typename T>
void to_float_rows(const T* x, int64_t rows, int64_t k, FloatRows& out) {
  for (int64_t m = 0; m < rows; ++m, x += k) {
    vi huge{};
    for (int64_t i = 0; i < k; i += kLanes) huge |= abs(load_first(x + i, k - i)) >= splat(0x1p100f);
    const float factor = any(huge) ? 0x1p-24f : kE4m3Unit;
    out.unit[m] = kE4m3Unit / factor;
    for (int64_t i = 0; i < out.stride; i += kLanes)
      store(out.data + m * out.stride + i, load_first(x + i, k - i) * splat(factor));
  }
}

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
void dot_rows(const FloatRows& x, const uint8_t* weight, const uint8_t* scale, int64_t k, float (&y)[M]) {
  constexpr int kAhead = 2048;  // bytes: the hardware's own prefetch ends with the page
  vf acc[M] = {};
  const int64_t full = k / kMxBlock;
  for (int64_t b = 0; b < full; b += kLanes) {
    const int count = full - b < kLanes ? static_cast<int>(full - b) : kLanes;
    float scales[kLanes];
    store(scales, decode_e8m0_first(scale + b, count));
    for (int i = 0; i < count; ++i) {
      const int64_t at = (b + i) * kMxBlock;
      __builtin_prefetch(weight + at + kAhead);
      add_block(weight + at, scales[i], x.data + at, x.stride, acc);
    }
  }
  if (k % kMxBlock != 0) {
    uint8_t codes[kMxBlock] = {};
    std::memcpy(codes, weight + full * kMxBlock, k % kMxBlock);
    add_block(codes, e8m0_to_float(scale[full]), x.data + full * kMxBlock, x.stride, acc);
  }
  const bool nan = has_e4m3_nan(weight, k);
  for (int m = 0; m < M; ++m) y[m] = nan ? __builtin_nanf("") : reduce_add(acc[m]) * x.unit[m];
}

}  // namespace mtl4::cpu::MTL4_ISA
