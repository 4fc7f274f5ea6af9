// The operands of mxfp8_gemm.h's tiles in bf16: all of a tile but its multiply.
//
// Rows of the weight whose products with their scales are not all in bf16's range are left to the exact kernel.
#pragma once

#include "cpu/kernels/mxfp8_bf16.h"
#include "cpu/kernels/mxfp8_gemm.h"

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)

namespace mtl4::cpu::MTL4_ISA {

// kTiles tiles of 16 rows of x; kPlanes bf16 per element of x; a decoded row's groups are kStep elements apart.
template <int kTiles, int kPlanes, int64_t kStep>
struct Bf16Operands {
  using Element = uint16_t;
  static constexpr int64_t kColumns = 16 * kTiles, kPerColumn = kColumns * kPlanes;
  static constexpr int64_t kGroup = kBf16Group;
  static constexpr int64_t kTile = 16 * 32;  // elements of one tile

  // Group by group: planes, its two registers, tiles; a tile is [16 pairs of k][16 rows of x][2].
  template <typename T>
  static void pack(const T* x, int64_t rows, int64_t k, uint16_t* out) {
    for (int64_t i = 0; i < k; i += kGroup, out += kGroup * kPerColumn)
      for (int t = 0; t < kTiles; ++t) {
        vf squares[kPlanes][2][16] = {};
        for (int64_t m = 0; m < smaller(16, rows - 16 * t); ++m) {
          __m512i first[kPlanes], second[kPlanes];
          split_group<kPlanes>(x + (16 * t + m) * k + i, smaller(kGroup, k - i), first, second);
          for (int q = 0; q < kPlanes; ++q) {
            squares[q][0][m] = bits_as<vf>(first[q]);
            squares[q][1][m] = bits_as<vf>(second[q]);
          }
        }
        for (int q = 0; q < kPlanes; ++q)
          for (int step = 0; step < 2; ++step) {
            transpose(squares[q][step]);
            uint16_t* tile = out + ((2 * q + step) * kTiles + t) * kTile;
            for (int r = 0; r < 16; ++r) _mm512_storeu_ps(tile + r * 32, squares[q][step][r]);
          }
      }
  }

  // A row of the weight, zeros to the end of its last group. False if bf16 cannot hold some of it, or it holds a NaN.
  static bool decode(const uint8_t* codes, const uint8_t* scale, int64_t k, uint16_t* out) {
    constexpr int64_t kScales = 32;  // at once
    const E4m3ToBf16<kRaised> table;
    const __m512i most = _mm512_set1_epi16(kMostScale);
    __m512i seen = _mm512_setzero_si512();
    bool plain = true;
    for (int64_t i = 0; i < k; i += kScales * kMxBlock) {
      const int64_t blocks = smaller(kScales, (k - i + kMxBlock - 1) / kMxBlock);
      const __m512i scales = _mm512_cvtepu8_epi16(_mm256_mask_loadu_epi8(
          _mm256_set1_epi8(static_cast<char>(kMostScale)), ~0u >> (kScales - blocks), scale + i / kMxBlock));
      const __m512i above_least = _mm512_sub_epi16(scales, _mm512_set1_epi16(kLeastScale));
      if (_mm512_cmpgt_epu16_mask(above_least, _mm512_set1_epi16(kMostScale - kLeastScale)) != 0)
        plain = plain && extreme_scales_have_zeros(codes + i, scale + i / kMxBlock, smaller(kScales * kMxBlock, k - i));
      const __m512i lower_by = _mm512_slli_epi16(_mm512_subs_epu16(most, scales), 7);
      __m512i blocks_of_lanes = second_half_of_lanes<uint16_t>();
      for (int64_t j = i; j < smaller(i + kScales * kMxBlock, k); j += kGroup) {
        __builtin_prefetch(codes + j + kAhead);
        const __m512i by = _mm512_permutexvar_epi16(blocks_of_lanes, lower_by);
        blocks_of_lanes = _mm512_add_epi16(blocks_of_lanes, _mm512_set1_epi16(2));
        decode_group(load_codes(codes + j, k - j), table, by, seen, out + j / kGroup * kStep);
      }
    }
    return plain && _mm512_cmpeq_epi8_mask(seen, _mm512_set1_epi8(E4m3ToBf16<kRaised>::kNan >> 8)) == 0;
  }

 private:
  static constexpr int64_t kAhead = 2048;  // bytes: the hardware's own prefetch ends with the page

  // With these scales every e4m3 value but 0 is a normal bf16.
  static constexpr int16_t kLeastScale = 10, kMostScale = 237;

  // Subtracting (kMostScale - scale) from a raised exponent, with unsigned saturation, applies the scale and leaves 0
  // at 0.
  static constexpr int kRaised = kMostScale - 127;

  static bool extreme_scales_have_zeros(const uint8_t* codes, const uint8_t* scale, int64_t k) {
    for (int64_t i = 0; i < k; i += kMxBlock) {
      const uint8_t s = scale[i / kMxBlock];
      if (s >= kLeastScale && s <= kMostScale) continue;
      if (s == kE8m0Nan || !all_zero(codes + i, smaller(kMxBlock, k - i))) return false;
    }
    return true;
  }

  static MTL4_INLINE void decode_group(__m512i codes, const E4m3ToBf16<kRaised>& table, __m512i by, __m512i& seen,
                                       uint16_t* out) {
    __m512i low, high;
    table.look_up(codes, low, high);
    seen = _mm512_max_epu8(seen, high);
    const __m512i sign = _mm512_set1_epi16(static_cast<int16_t>(0x8000));
    const __m512i first = _mm512_subs_epu16(_mm512_unpacklo_epi8(low, high), by);
    const __m512i second = _mm512_subs_epu16(_mm512_unpackhi_epi8(low, high), by);
    _mm512_storeu_si512(out, select_bits(sign, _mm512_unpacklo_epi8(codes, codes), first));
    _mm512_storeu_si512(out + 32, select_bits(sign, _mm512_unpackhi_epi8(codes, codes), second));
  }
};

}  // namespace mtl4::cpu::MTL4_ISA

#endif
