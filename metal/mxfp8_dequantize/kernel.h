// Dequantizes rows of MX blocks: four lanes share a block, eight codes each.
//
// The bits of a result are put together from those of its code and its scale: results may be subnormal.
#pragma once

#include "common/mx.h"
#include "mxfp8_dequantize/params.h"

constant constexpr int kDequantizePerThread = 8;

// Exponent and mantissa of a float type: `bits` of the mantissa, the bias, and an unsigned integer of its size.
template <typename T>
struct FloatFormat;
template <>
struct FloatFormat<float> {
  using Bits = uint;
  static constant constexpr int bits = 23, bias = 127;
};
template <>
struct FloatFormat<bfloat> {
  using Bits = ushort;
  static constant constexpr int bits = 7, bias = 127;
};
template <>
struct FloatFormat<half> {
  using Bits = ushort;
  static constant constexpr int bits = 10, bias = 15;
};

// The value of a code under a scale byte, rounded once, to nearest even.
template <typename T>
T dequantized(uchar code, uchar scale) {
  using Format = FloatFormat<T>;
  constexpr int kFields = 2 * Format::bias + 1;  // exponent of infinity and NaN
  const uint magnitude = code & 0x7f;
  // The value is significand * 2^(exponent - 3) with a significand of four bits, 8 to 15, or 0.
  const int up = magnitude < 8 ? max(int(clz(magnitude)) - 28, 0) : 0;
  const uint significand = magnitude < 8 ? magnitude << up : 8 | (magnitude & 7);
  const int exponent = (magnitude < 8 ? 1 - up : int(magnitude >> 3)) - 7 + int(scale) - 127;
  const int field = exponent + Format::bias;

  uint bits = (uint(field) << Format::bits) + ((significand & 7) << (Format::bits - 3));
  if (field >= kFields) bits = uint(kFields) << Format::bits;
  if (field < 1) {
    const int shift = Format::bits - 3 - (1 - field);  // to a multiple of the smallest subnormal
    const int right = clamp(-shift, 1, 5);
    const uint rounded = (significand + (1u << (right - 1)) - 1 + (significand >> right & 1)) >> right;
    bits = shift >= 0 ? significand << shift : rounded;
  }
  if (significand == 0) bits = 0;
  if (magnitude == kE4m3Nan || scale == kE8m0Nan) bits = (uint(kFields) << Format::bits) + (1u << (Format::bits - 1));
  constexpr int kWidth = 8 * int(sizeof(T));
  return as_type<T>(typename Format::Bits(bits | uint(code >> 7) << (kWidth - 1)));
}

// A threadgroup is threads.x by threads.y threads over columns and rows.
template <typename T>
void dequantize_eight(device const uchar* data, device const uchar* scale, device T* out, ParamsRef params, uint2 group,
                      uint2 position, uint2 threads) {
  const long row = params.first_row + long(group.y) * threads.y + position.y;
  const long column = params.first_column + (long(group.x) * threads.x + position.x) * kDequantizePerThread;
  if (row >= params.rows || column >= params.k) return;
  const long at = row * params.k + column, left = params.k - column;
  const uchar byte = scale[row * ((params.k + kMxBlock - 1) / kMxBlock) + column / kMxBlock];
  for (int i = 0; i < kDequantizePerThread; ++i)
    if (i < left) out[at + i] = dequantized<T>(data[at + i], byte);
}
