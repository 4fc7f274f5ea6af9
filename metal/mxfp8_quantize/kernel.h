// Quantizes rows of MX blocks: eight lanes share a block, four values each.
//
// All of it is arithmetic on the bits of the values as floats, so that subnormals count and results are the same bits
// everywhere.
#pragma once

#include "common/mx.h"
#include "mxfp8_quantize/params.h"

constant constexpr int kQuantizePerThread = 4;
constant constexpr uint kFloatInfinity = 0x7f800000, kFloatMantissa = 0x7fffff;

inline uint float_bits(float x) { return as_type<uint>(x); }
inline uint float_bits(bfloat x) { return uint(as_type<ushort>(x)) << 16; }
inline uint float_bits(half x) {
  const uint bits = as_type<ushort>(x), magnitude = bits & 0x7fff, sign = (bits & 0x8000) << 16;
  if (magnitude >= 0x7c00) return sign | kFloatInfinity | (magnitude & 0x3ff) << 13;
  if (magnitude >= 0x400) return sign | ((magnitude << 13) + (112u << 23));
  return sign | as_type<uint>(float(magnitude) * 0x1p-24f);
}

// `largest` are the bits of the largest magnitude; the modes differ in where they round its exponent up.
inline uchar scale_byte(uint largest, int scaling) {
  constexpr uint kMantissaOf448 = 0x600000, kHalfStepOfE4m3 = 0x80000;
  constexpr int kLargestExponent = 8;  // of e4m3
  if (largest >= kFloatInfinity) return kE8m0Nan;
  const uint mantissa = largest & kFloatMantissa;
  int exponent = int(largest >> 23);
  if (scaling == kMxfp8ScalingRceil) exponent += mantissa > kMantissaOf448;
  if (scaling == kMxfp8ScalingCeil) exponent += mantissa > 0;
  if (scaling == kMxfp8ScalingEven) exponent = int((largest + kHalfStepOfE4m3) >> 23);
  return uchar(max(exponent - kLargestExponent, 0));
}

inline uint shift_to_even(uint x, int bits) { return (x + (1u << (bits - 1)) - 1 + (x >> bits & 1)) >> bits; }

// The code of a finite value divided by its block's scale; ties go to the even code, overflow to the largest one.
inline uchar encode_e4m3(uint bits, uchar scale) {
  constexpr int kDropped = 20;  // bits of a float's mantissa beyond e4m3's
  uint mantissa = bits & kFloatMantissa;
  int exponent = int(bits >> 23 & 0xff);
  if (exponent == 0) {
    const int up = max(int(clz(mantissa)) - 8, 0);
    mantissa = mantissa << up & kFloatMantissa;
    exponent = 1 - up;
  }
  const uint sign = bits >> 24 & 0x80;
  if ((bits & 0x7fffffff) == 0) return uchar(sign);
  const int field = exponent - int(scale) + 7;  // of e4m3, where it is at least 1
  const uint code = field >= 1 ? shift_to_even(uint(field) << 23 | mantissa, kDropped)
                               : shift_to_even(mantissa | 0x800000, min(kDropped + 1 - field, 25));
  return uchar(min(code, uint(kE4m3Nan) - 1) | sign);
}

// A threadgroup is threads.x by threads.y threads over columns and rows; threads.x is a multiple of 8.
template <typename T>
void quantize_four(device const T* x, device uchar* data, device uchar* scale, ParamsRef params, int scaling,
                   uint2 group, uint2 position, uint2 threads) {
  const long row = params.first_row + long(group.y) * threads.y + position.y;
  const long column = params.first_column + (long(group.x) * threads.x + position.x) * kQuantizePerThread;
  const long left = row < params.rows ? params.k - column : 0, at = row * params.k + column;

  uint bits[kQuantizePerThread], largest = 0;
  for (int i = 0; i < kQuantizePerThread; ++i) {
    bits[i] = i < left ? float_bits(x[at + i]) : 0;
    largest = max(largest, bits[i] & 0x7fffffff);
  }
  for (ushort distance = 1; distance < kMxBlock / kQuantizePerThread; distance *= 2)
    largest = max(largest, simd_shuffle_xor(largest, distance));
  const uchar byte = scale_byte(largest, scaling);

  for (int i = 0; i < kQuantizePerThread; ++i)
    if (i < left) data[at + i] = byte == kE8m0Nan ? kE4m3Nan : encode_e4m3(bits[i], byte);
  if (left > 0 && column % kMxBlock == 0)
    scale[row * ((params.k + kMxBlock - 1) / kMxBlock) + column / kMxBlock] = byte;
}
