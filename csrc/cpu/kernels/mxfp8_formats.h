// Words for the two number formats of mxfp8: e4m3 elements and e8m0 scales (OCP Microscaling Formats v1.0, 5.3
// and 5.4).
#pragma once

#include "cpu/kernels/vec.h"
#include "ops/mxfp8.h"

namespace mtl4::cpu::MTL4_ISA {

constexpr uint8_t kE4m3Nan = 0x7f;  // with either sign
constexpr uint8_t kE8m0Nan = 0xff;
constexpr int kBlockVectors = kMxBlock / kLanes;

// Shifted to where a half has its exponent and mantissa, an e4m3 code is its value times 2^-8, subnormals included. NaN
// codes come out as 480 * 2^-8 and are the caller's to find.
constexpr float kE4m3Unit = 256.0f;
constexpr int16_t kSignAndCode = static_cast<int16_t>(0xbf80);  // of a sign-extended code shifted left by 7

// kLanes bytes as integers. (g++ 12 takes __builtin_convertvector from bytes apart, lane by lane.)
MTL4_INLINE vu load_bytes(const uint8_t* p) {
#if defined(__AVX512F__)
  return bits_as<vu>(_mm512_cvtepu8_epi32(load_as<__m128i>(p)));
#elif defined(__AVX2__)
  return bits_as<vu>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  typedef uint8_t bytes __attribute__((vector_size(kLanes)));
  return __builtin_convertvector(load_as<bytes>(p), vu);
#endif
}

MTL4_INLINE void store_bytes(uint8_t* p, vu x) {
#if defined(__AVX512F__)
  const __m128i b = _mm512_cvtepi32_epi8(bits_as<__m512i>(x));
#elif defined(__AVX2__)
  const __m256i v = bits_as<__m256i>(x);
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const int64_t b = _mm_cvtsi128_si64(_mm_packus_epi16(words, words));
#else
  typedef uint8_t bytes __attribute__((vector_size(kLanes)));
  const bytes b = __builtin_convertvector(x, bytes);
#endif
  std::memcpy(p, &b, sizeof b);
}

// 2 * kLanes codes.
MTL4_INLINE void decode_e4m3(const uint8_t* p, vf& low, vf& high) {
#if defined(__AVX512F__)
  const __m512i code = _mm512_cvtepi8_epi16(load_as<__m256i>(p));
  const __m512i half = _mm512_and_si512(_mm512_slli_epi16(code, 7), _mm512_set1_epi16(kSignAndCode));
  low = _mm512_cvtph_ps(_mm512_castsi512_si256(half));
  high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
#elif defined(__AVX2__)
  const __m256i code = _mm256_cvtepi8_epi16(load_as<__m128i>(p));
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(code, 7), _mm256_set1_epi16(kSignAndCode));
  low = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
  high = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
#elif defined(__aarch64__)
  const int16x8_t code = vmovl_s8(load_as<int8x8_t>(p));
  const int16x8_t half = vandq_s16(vshlq_n_s16(code, 7), vdupq_n_s16(kSignAndCode));
  const float16x8_t value = vreinterpretq_f16_s16(half);
  low = vcvt_f32_f16(vget_low_f16(value));
  high = vcvt_high_f32_f16(value);
#else
  const vu code[2] = {load_bytes(p), load_bytes(p + kLanes)};
  vf* const out[2] = {&low, &high};
  for (int i = 0; i < 2; ++i) {
    const vu magnitude = code[i] & 0x7fu;
    const vf subnormal = __builtin_convertvector(bits_as<vi>(magnitude), vf) * 0x1p-17f;
    const vu normal = (magnitude << 20) + (112u << 23);
    *out[i] = bits_as<vf>((magnitude < 8u ? bits_as<vu>(subnormal) : normal) | (code[i] & 0x80u) << 24);
  }
#endif
}

// One block of 32 codes.
MTL4_INLINE void decode_e4m3(const uint8_t* p, vf (&out)[kBlockVectors]) {
#pragma GCC unroll 4
  for (int i = 0; i < kBlockVectors; i += 2) decode_e4m3(p + i * kLanes, out[i], out[i + 1]);
}

// kLanes scales. Byte 0 is the subnormal 2^-127 and byte 255 is NaN: both are one bit below the exponent.
MTL4_INLINE vf decode_e8m0(const uint8_t* p) {
  const vu b = load_bytes(p);
  const vu edge = ((b + 1) & 0xffu) <= 1u ? vu{} + 0x400000u : vu{};
  return bits_as<vf>(b << 23 | edge);
}

// The first n of them, n at most kLanes; the others are not read.
MTL4_INLINE vf decode_e8m0_first(const uint8_t* p, int n) {
  if (n == kLanes) return decode_e8m0(p);
  uint8_t bytes[kLanes] = {};
  for (int i = 0; i < n; ++i) bytes[i] = p[i];
  return decode_e8m0(bytes);
}

MTL4_INLINE float e8m0_to_float(uint8_t b) {
  const uint32_t edge = b == 0 || b == kE8m0Nan ? 0x400000u : 0u;
  return bits_as<float>(static_cast<uint32_t>(b) << 23 | edge);
}

// Codes of |x| <= 448 (larger ones saturate), to nearest even; NaN is not for this function.
MTL4_INLINE vu encode_e4m3(vf x) {
  constexpr uint32_t kMax = 0x43e00000u;            // 448
  constexpr uint32_t kSmallestNormal = 121u << 23;  // 2^-6
  constexpr uint32_t kRebias = 120u << 3;
  const vu u = bits_as<vu>(x);
  vu a = u & 0x7fffffffu;
  a = a > kMax ? vu{} + kMax : a;
  const vu normal = ((a + 0x7ffffu + ((a >> 20) & 1u)) >> 20) - kRebias;
  // Beside 2^14 a float's last place is 2^-9, the step of the subnormals: the addition rounds.
  const vu subnormal = bits_as<vu>(bits_as<vf>(a) + 16384.0f) - bits_as<uint32_t>(16384.0f);
  return (a < kSmallestNormal ? subnormal : normal) | (u >> 24 & 0x80u);
}

// True of zeros of either sign.
MTL4_INLINE bool all_zero(const uint8_t* p, int64_t n) {
  uint8_t any_bit = 0;
  for (int64_t i = 0; i < n; ++i) any_bit |= p[i] & 0x7f;
  return any_bit == 0;
}

MTL4_INLINE bool has_e4m3_nan(const uint8_t* p, int64_t n) {
  uint8_t top = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t code = p[i] & kE4m3Nan;
    top = code > top ? code : top;
  }
  return top == kE4m3Nan;
}

}  // namespace mtl4::cpu::MTL4_ISA
