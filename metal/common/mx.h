// The number formats of MX blocks: e4m3 elements and e8m0 scales (OCP Microscaling Formats v1.0, 5.3 and 5.4).
#pragma once

#include <metal_stdlib>

constant constexpr int kMxBlock = 32;
constant constexpr uchar kE4m3Nan = 0x7f;  // with either sign
constant constexpr uchar kE8m0Nan = 0xff;

// The value of an e4m3 code. Built from the bits of a normal float, or from an integer where the code is subnormal:
// a GPU may take subnormal halves and floats for zero.
inline float decode_e4m3(uchar code) {
  const uint magnitude = code & 0x7f;
  const float normal = as_type<float>((magnitude << 20) + (120u << 23));
  const float value = magnitude < 8 ? float(magnitude) * 0x1p-9f : normal;
  const float finite_or_nan = magnitude == kE4m3Nan ? NAN : value;
  return code & 0x80 ? -finite_or_nan : finite_or_nan;
}

// An e8m0 scale as the product of two normal floats, since 2^-127 is none and a GPU may take it for zero.
struct E8m0Scale {
  float first, second;

  explicit E8m0Scale(uchar byte) {
    const int exponent = int(byte) - 127, half_of_it = exponent / 2;
    first = byte == kE8m0Nan ? NAN : as_type<float>(uint(half_of_it + 127) << 23);
    second = as_type<float>(uint(exponent - half_of_it + 127) << 23);
  }

  float of(float value) const thread { return value * first * second; }
};
