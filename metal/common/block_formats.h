// Weights of 4 and 8 bits in blocks that share a scale (torch_mtl4/formats/block.py says what the bytes mean).
#pragma once

#include "common/mx.h"

// Sixteen bytes at a time, and as many elements: a block is a multiple of them, or a row.
constant constexpr int kBytesAtOnce = 16;

// A scale as two factors, of which neither is subnormal: a GPU may take such floats for zero.
struct ScaleFactors {
  float first, second;

  float apply(float sum) const thread { return sum * first * second; }
};

inline ScaleFactors factors_of(uchar e8m0) {
  const uint part = e8m0 / 2, rest = e8m0 - part;
  return {as_type<float>((part + 64) << 23), as_type<float>(e8m0 == kE8m0Nan ? kFloatNan : (rest + 63) << 23)};
}

template <typename S>
inline ScaleFactors factors_of(S scale) {
  return {float(scale), 1.0f};
}

struct Mxfp4 {
  static constant constexpr int kBits = 4;

  static float decode(uint code) {
    // As in decode_e4m3: normal codes are less than twice themselves minus the smallest normal number, 1.
    const float normal = as_type<float>(((code & 7) << 22) + (126u << 23));
    return as_type<float>(as_type<uint>(min(normal, 2 * normal - 1)) | (code & 8) << 28);
  }
};

struct Int4 {
  static constant constexpr int kBits = 4;

  static float decode(uint code) { return float(int(code << 28) >> 28); }
};

struct Int8 {
  static constant constexpr int kBits = 8;

  static float decode(uint code) { return float(int(code << 24) >> 24); }
};
