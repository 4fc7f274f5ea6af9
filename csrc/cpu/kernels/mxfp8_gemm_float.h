// The tile of mxfp8_gemm.h in floats: every instruction set has it.
#pragma once

#include "cpu/kernels/mxfp8_gemm.h"

namespace mtl4::cpu::MTL4_ISA {

// kVectors registers of rows of x; as many rows of the weight as the register file leaves room for.
template <int kVectors>
struct FloatTile {
  using Element = float;
#if defined(__AVX512F__)
  static constexpr int kRows = 14;
#elif defined(__aarch64__)
  static constexpr int kRows = 12;
#else
  static constexpr int kRows = 6;
#endif
  static constexpr int64_t kHeight = kMostRows / kRows * kRows;
  static constexpr int64_t kColumns = kVectors * kLanes, kPerColumn = kColumns;
  static constexpr int64_t kGroup = kMxBlock;
  static constexpr int64_t kDepth = 256, kDepthForFew = 4096;  // a panel of x of kDepth stays in the first cache
  static int64_t stride(int64_t depth) { return depth + 16; }  // so that rows of a tile fall into different cache sets
  static float* row(float* decoded, int64_t n, int64_t stride) { return decoded + n * stride; }
  struct Session {
    Session() {}  // user-provided, so that an unused object of it is no warning
  };

  // out[k][m] = x[m][k], zeros behind the last row and the last column.
  template <typename T>
  static void pack(const T* x, int64_t rows, int64_t k, float* out) {
    for (int64_t i = 0; i < round_up(k, kGroup); i += kLanes)
      for (int64_t m = 0; m < kColumns; m += kLanes) {
        vf square[kLanes];
        for (int j = 0; j < kLanes; ++j) square[j] = m + j < rows ? load_first(x + (m + j) * k + i, k - i) : vf{};
        transpose(square);
        for (int j = 0; j < kLanes; ++j) store(out + (i + j) * kColumns + m, square[j]);
      }
  }

  // A row of the weight, zeros to the end of its last group. False if a float cannot hold some of it, or it holds a
  // NaN.
  static bool decode(const uint8_t* codes, const uint8_t* scale, int64_t k, float* out) {
    constexpr uint8_t kMostScale = 245;  // 448 * 2^(245 - 127) is far inside a float's range, as its multiples are
    bool plain = !has_e4m3_nan(codes, k);
    for (int64_t i = 0; i < k; i += kMxBlock) {
      __builtin_prefetch(codes + i + k);  // what is decoded next, or after the panel's other rows
      const uint8_t s = scale[i / kMxBlock];
      const int64_t left = smaller(kMxBlock, k - i);
      plain = plain && (s <= kMostScale || (s != kE8m0Nan && all_zero(codes + i, left)));
      uint8_t padded[kMxBlock] = {};
      if (left < kMxBlock) std::memcpy(padded, codes + i, left);
      vf w[kBlockVectors];
      decode_e4m3(left < kMxBlock ? padded : codes + i, w);
      // 2^(s - 127) * kE4m3Unit
      const vf factor = splat(bits_as<float>((static_cast<uint32_t>(s <= kMostScale ? s : kMostScale) + 8u) << 23));
      for (int j = 0; j < kBlockVectors; ++j) store(out + i + j * kLanes, w[j] * factor);
    }
    return plain;
  }

  static void multiply(const float* weight, int64_t stride, const float* x, int64_t /*rows*/, int64_t k, float* tile,
                       bool add, Ahead) {
    for (int64_t i = 0; i < k; i += kDepth)
      multiply_part(weight + i, stride, x + i * kColumns, smaller(kDepth, k - i), tile, add || i > 0);
  }

 private:
  // Adds the sum over this depth as a whole, which rounds less than one long sum does.
  static void multiply_part(const float* weight, int64_t stride, const float* x, int64_t k, float* tile, bool add) {
    vf acc[kRows][kVectors] = {};
    for (int64_t i = 0; i < k; ++i, x += kColumns) {
      vf columns[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) columns[v] = load(x + v * kLanes);
#pragma GCC unroll 16
      for (int n = 0; n < kRows; ++n) {
        const vf w = splat(weight[n * stride + i]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) acc[n][v] = fma(w, columns[v], acc[n][v]);
      }
    }
#pragma GCC unroll 16
    for (int n = 0; n < kRows; ++n)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* out = tile + n * kColumns + v * kLanes;
        store(out, add ? load(out) + acc[n][v] : acc[n][v]);
      }
  }
};

}  // namespace mtl4::cpu::MTL4_ISA
