// The number formats of MX blocks: e4m3 elements and e8m0 scales (OCP Microscaling Formats v1.0, 5.3 and 5.4).
//
// A GPU may take subnormal floats and halves for zero, and its compiler may assume that there is no NaN and reorder
// products. So NaN is made from its bits, and whatever may be subnormal is computed with integers.
#pragma once

#include <metal_stdlib>

constant constexpr int kMxBlock = 32;
constant constexpr uchar kE4m3Nan = 0x7f;  // with either sign
constant constexpr uchar kE8m0Nan = 0xff;
constant constexpr uint kFloatNan = 0x7fc00000;

// A scale byte as the two things that make a code a weight: where the exponent of the decoded code starts, and a factor
// for what is left. Between the bytes 10 and 245 every weight is a normal float and bfloat, and the factor is 1.
struct MxScale {
  uint exponent;
  float rest;

  explicit MxScale(uchar byte) {
    const int inside = clamp(int(byte), 10, 245);
    exponent = uint(inside - 7) << 23;
    rest = as_type<float>(byte == kE8m0Nan ? kFloatNan : uint(int(byte) - inside + 127) << 23);
  }
  bool has_rest() const thread { return as_type<uint>(rest) != 127u << 23; }
};

// The weight, up to MxScale::rest, of an e4m3 code in the low bits.
inline float decode_e4m3(uint code, uint exponent) {
  const uint magnitude = code & 0x7f;
  const float normal = as_type<float>((magnitude << 20) + exponent);
  // Normal codes are less than twice themselves minus the smallest one; for subnormal ones that difference is right.
  const float value = min(normal, 2 * normal - as_type<float>(exponent + (1u << 23)));
  const uint bits = magnitude == kE4m3Nan ? kFloatNan : as_type<uint>(value);
  return as_type<float>(bits | (code & 0x80) << 24);
}
