// What every kernel of mxfp8_linear does alike: it loads x and codes up to the end of a row, and stores with a bias.
#pragma once

#include "common/mx.h"
#include "mxfp8_linear/params.h"

constant constexpr int kCodesAtOnce = 16;

// Sixteen codes, the first in the lowest byte; zeros behind the first `left`.
inline uint4 load_codes(device const uchar* codes, long left) {
  if (aligned && left >= kCodesAtOnce) return *reinterpret_cast<device const uint4*>(codes);
  uint4 words = 0;
  for (int i = 0; i < kCodesAtOnce; ++i)
    if (i < left) words[i / 4] |= uint(codes[i]) << (i % 4 * 8);
  return words;
}

// Four values of x; zeros behind the first `left`.
template <typename T>
float4 load_four(device const T* x, long left) {
  if (left >= 4) return float4(float(x[0]), float(x[1]), float(x[2]), float(x[3]));
  float4 values = 0;
  for (int i = 0; i < 4; ++i)
    if (i < left) values[i] = float(x[i]);
  return values;
}

inline float4 decode_four(uint codes, uint exponent) {
  return float4(decode_e4m3(codes, exponent), decode_e4m3(codes >> 8, exponent), decode_e4m3(codes >> 16, exponent),
                decode_e4m3(codes >> 24, exponent));
}

template <typename T>
void store_with_bias(device T* out, device const T* bias, ParamsRef p, long m, long n, float value) {
  if (m >= p.m || n >= p.n) return;
  if (has_bias) value += float(bias[n * p.bias_stride]);
  out[m * p.n + n] = T(value);
}
