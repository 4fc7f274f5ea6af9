// What the kernels that multiply in bf16 have in common: e4m3 and halves as bf16, in groups of 64 elements of k.
//
// An e4m3 element is a bf16 exactly, and so is its product with a scale, as long as the exponent is in bf16's range. A
// half is the sum of two bf16 exactly, and is multiplied as such. Dot products of bf16, by AVX512-BF16 and by AMX, take
// subnormal inputs and results for 0.
//
// A group is two registers of 32 elements, in the order in which the unpack instructions leave them: `first` holds
// the first 8 of every 16 elements, `second` the others.
#pragma once

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)

#include "cpu/kernels/mxfp8_formats.h"

namespace mtl4::cpu::MTL4_ISA {

constexpr int64_t kBf16Group = 64;

template <typename T>
constexpr int kBf16Planes = sizeof(T) == 2 ? 1 : 0;  // how many bf16 make up one element of x; 0: none do
template <>
inline constexpr int kBf16Planes<fp16> = 2;

// The bf16 of e4m3's 128 magnitudes, as tables of bytes, with kRaised added to the exponent of all but 0.
template <int kRaised>
class E4m3ToBf16 {
 public:
  static constexpr uint16_t kNan = 0x7fff;

  // The magnitudes' low and high bytes.
  MTL4_INLINE void look_up(__m512i codes, __m512i& low, __m512i& high) const {
    low = _mm512_permutex2var_epi8(tables_[0], codes, tables_[1]);
    high = _mm512_permutex2var_epi8(tables_[2], codes, tables_[3]);
  }

 private:
  static constexpr uint16_t value(int code) {
    if (code == 0) return 0;
    if (code == kE4m3Nan) return kNan;
    int exponent = code >> 3, mantissa = code & 7;
    if (exponent == 0) {
      for (exponent = 1; mantissa < 8; mantissa <<= 1) --exponent;
      mantissa &= 7;
    }
    return static_cast<uint16_t>((exponent + 120 + kRaised) << 7 | mantissa << 4);
  }

  // Low (byte 0) or high bytes of the first or second 64 codes.
  static __m512i table(int byte, int half) {
    struct Tables {
      alignas(64) uint8_t bytes[2][128];
    };
    static constexpr Tables kTables = [] {
      Tables t{};
      for (int code = 0; code < 128; ++code) {
        t.bytes[0][code] = static_cast<uint8_t>(value(code) & 0xff);
        t.bytes[1][code] = static_cast<uint8_t>(value(code) >> 8);
      }
      return t;
    }();
    return _mm512_load_si512(kTables.bytes[byte] + 64 * half);
  }

  const __m512i tables_[4] = {table(0, 0), table(0, 1), table(1, 0), table(1, 1)};
};

// Bits of `yes` where mask has them set, of `no` elsewhere.
MTL4_INLINE __m512i select_bits(__m512i mask, __m512i yes, __m512i no) {
  return _mm512_ternarylogic_epi32(mask, yes, no, 0xca);
}

// The first n (at most 64) codes of a group, zeros behind them; memory behind them is not touched.
MTL4_INLINE __m512i load_codes(const uint8_t* codes, int64_t n) {
  return n >= kBf16Group ? _mm512_loadu_si512(codes) : _mm512_maskz_loadu_epi8(~uint64_t{0} >> (kBf16Group - n), codes);
}

// Lane i of the group's registers is of block `i >= half`.
template <typename Lane>
MTL4_INLINE __m512i second_half_of_lanes() {
  const __m256i one = sizeof(Lane) == 2 ? _mm256_set1_epi16(1) : _mm256_set1_epi32(1);
  return _mm512_inserti64x4(_mm512_setzero_si512(), one, 1);
}

// n elements of x, at most a group, zeros behind them.
template <int kPlanes>
MTL4_INLINE void split_group(const bf16* x, int64_t n, __m512i (&first)[kPlanes], __m512i (&second)[kPlanes]) {
  const uint64_t lanes = ~uint64_t{0} >> (kBf16Group - n);
  const __m512i low = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(lanes), x);
  const __m512i high = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(lanes >> 32), x + 32);
  first[0] = _mm512_shuffle_i64x2(low, high, 0x88);
  second[0] = _mm512_shuffle_i64x2(low, high, 0xdd);
}
template <int kPlanes>
MTL4_INLINE void split_group(const fp16* x, int64_t n, __m512i (&first)[kPlanes], __m512i (&second)[kPlanes]) {
  bf16 planes[kPlanes][kBf16Group] = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    const vf value = load_first(x + i, n - i);
    const vu16 high = to_bf16(value);
    const vf rest = value - bits_as<vf>(widen(high) << 16);
    // Nothing is left of infinity and NaN.
    const vu16 low = to_bf16(select(abs(value) < __builtin_inff(), rest, vf{}));
    std::memcpy(planes[0] + i, &high, sizeof high);
    std::memcpy(planes[kPlanes - 1] + i, &low, sizeof low);
  }
  for (int q = 0; q < kPlanes; ++q) {
    __m512i one[1], other[1];
    split_group<1>(planes[q], kBf16Group, one, other);
    first[q] = one[0];
    second[q] = other[0];
  }
}

}  // namespace mtl4::cpu::MTL4_ISA

#endif
