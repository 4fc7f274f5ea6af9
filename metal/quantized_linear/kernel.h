// out = x @ dequantize(weight, scale).T for weights of 4 and 8 bits: every byte of the weight is read once for kRows
// rows of x. A simdgroup takes kColumns rows of the weight, a lane sixteen bytes of each at a time, which share a
// scale.
//
// x [M, K], weight [N, ceil(K * bits / 8)] bytes, scale [N, blocks], out [M, N]; x and out are dense.
#pragma once

#include "common/block_formats.h"
#include "common/coreai.h"

constant constexpr int kQuantizedSimdgroups = 8;

template <int kRows>
constexpr int quantized_columns() {
  return kRows > 1 ? 2 : 4;
}

// Sixteen bytes, the first in the lowest place; zeros behind the first `left`.
inline uint4 load_bytes(device const uchar* bytes, long left, bool aligned) {
  if (aligned && left >= kBytesAtOnce) return *reinterpret_cast<device const uint4*>(bytes);
  uint4 words = 0;
  for (int i = 0; i < kBytesAtOnce; ++i)
    if (i < left) words[i / 4] |= uint(bytes[i]) << (i % 4 * 8);
  return words;
}

// `block` is a number of elements, or 0 for a row; `aligned` says that rows of the weight begin at multiples of 16
// bytes.
template <class Format, int kRows, typename T, typename S>
void quantized_linear(Operand<T, 2> x, Operand<uchar, 2> weight, Operand<S, 2> scale, Operand<T, 2> out, int block,
                      bool aligned, uint2 group, uint simdgroup, uint lane) {
  constexpr int kColumns = quantized_columns<kRows>(), kPerWord = 32 / Format::kBits, kAtOnce = 4 * kPerWord;
  const long rows = x.size[0], columns = weight.size[0], depth = x.size[1];
  const long m0 = long(group.y) * kRows, n0 = (long(group.x) * kQuantizedSimdgroups + simdgroup) * kColumns;

  float total[kRows][kColumns] = {};
  for (long k = long(lane) * kAtOnce; k < depth; k += 32 * kAtOnce) {
    const long byte = k * Format::kBits / 8, at_scale = block == 0 ? 0 : k / block;
    uint4 codes[kColumns];
#pragma clang loop unroll(full)
    for (int c = 0; c < kColumns; ++c) {
      const long n = min(n0 + c, columns - 1);
      codes[c] = load_bytes(weight.data + n * weight.stride[0] + byte, weight.size[1] - byte, aligned);
    }
    float sum[kRows][kColumns] = {};
#pragma clang loop unroll(full)
    for (int word = 0; word < 4; ++word) {
      const int count = int(clamp(depth - k - word * kPerWord, 0l, long(kPerWord)));
      float weights[kColumns][kPerWord];
#pragma clang loop unroll(full)
      for (int c = 0; c < kColumns; ++c)
#pragma clang loop unroll(full)
        for (int i = 0; i < kPerWord; ++i)
          weights[c][i] = Format::decode(codes[c][word] >> (i * Format::kBits) & ((1u << Format::kBits) - 1));
#pragma clang loop unroll(full)
      for (int m = 0; m < kRows; ++m) {
        device const T* values = x.data + min(m0 + m, rows - 1) * depth + k + word * kPerWord;
#pragma clang loop unroll(full)
        for (int i = 0; i < kPerWord; ++i) {
          const float value = i < count ? float(values[i]) : 0.0f;
#pragma clang loop unroll(full)
          for (int c = 0; c < kColumns; ++c) sum[m][c] += value * weights[c][i];
        }
      }
    }
#pragma clang loop unroll(full)
    for (int c = 0; c < kColumns; ++c) {
      const ScaleFactors factors = factors_of(scale.data[min(n0 + c, columns - 1) * scale.stride[0] + at_scale]);
#pragma clang loop unroll(full)
      for (int m = 0; m < kRows; ++m) total[m][c] += factors.apply(sum[m][c]);
    }
  }

#pragma clang loop unroll(full)
  for (int m = 0; m < kRows; ++m)
#pragma clang loop unroll(full)
    for (int c = 0; c < kColumns; ++c) {
      const float sum = simd_sum(total[m][c]);
      if (lane == 0 && m0 + m < rows && n0 + c < columns) out.data[(m0 + m) * columns + n0 + c] = T(sum);
    }
}
