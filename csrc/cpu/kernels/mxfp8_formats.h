// Words for the two number formats of mxfp8: e4m3 elements and e8m0 scales (OCP Microscaling Formats v1.0, 5.3 and 5.4).
#pragma once

#include "cpu/kernels/vec.h"
#include "ops/mxfp8.h"

namespace mtl4::cpu::MTL4_ISA {

constexpr uint8_t kE4m3Nan = 0x7f;  // with either sign
constexpr uint8_t kE8m0Nan = 0xff;
constexpr int kBlockVectors = kMxBlock / kLanes;

// The decoders below give e4m3 values times 2^-8: read as the top byte of a half's exponent and mantissa, an e4m3 code is
// exactly that, subnormals included. NaN codes come out as 480 * 2^-8 and are the caller's to find.
constexpr float kE4m3Unit = 256.0f;

template <int... Lane>
MTL4_INLINE void halves_of_e4m3(const uint8_t* p, vf& low, vf& high, Lanes<Lane...>) {
  typedef int8_t bytes __attribute__((vector_size(2 * kLanes)));
  typedef int16_t words __attribute__((vector_size(4 * kLanes)));
  constexpr int16_t kSignAndCode = static_cast<int16_t>(0xbf80);
  const words half = __builtin_convertvector(load_as<bytes>(p), words) << 7 & kSignAndCode;
#if defined(__AVX512F__)
  const __m512i v = bits_as<__m512i>(half);
  low = _mm512_cvtph_ps(_mm512_castsi512_si256(v));
  high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1));
#else
  const vu16 l = {static_cast<uint16_t>(half[Lane])...}, h = {static_cast<uint16_t>(half[Lane + kLanes])...};
  low = from_fp16(l);
  high = from_fp16(h);
#endif
}

// One block of 32 codes.
MTL4_INLINE void decode_e4m3(const uint8_t* p, vf (&out)[kBlockVectors]) {
#pragma GCC unroll 4
  for (int i = 0; i < kBlockVectors; i += 2)
    halves_of_e4m3(p + i * kLanes, out[i], out[i + 1], FirstLanes<kLanes>::type{});
}

// kLanes scales. Byte 0 is the subnormal 2^-127 and byte 255 is NaN: both are one bit below the exponent.
MTL4_INLINE vf decode_e8m0(const uint8_t* p) {
  typedef uint8_t bytes __attribute__((vector_size(kLanes)));
  const vu b = __builtin_convertvector(load_as<bytes>(p), vu);
  const vu edge = ((b + 1) & 0xffu) <= 1u ? vu{} + 0x400000u : vu{};
  return bits_as<vf>(b << 23 | edge);
}

MTL4_INLINE float e8m0_to_float(uint8_t b) {
  const uint32_t edge = b == 0 || b == kE8m0Nan ? 0x400000u : 0u;
  return bits_as<float>(static_cast<uint32_t>(b) << 23 | edge);
}

// Codes of |x| <= 448 (larger ones saturate), to nearest even; NaN is not for this function.
MTL4_INLINE vu encode_e4m3(vf x) {
  constexpr uint32_t kMax = 0x43e00000u;          // 448
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

MTL4_INLINE bool has_e4m3_nan(const uint8_t* p, int64_t n) {
  uint8_t top = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t code = p[i] & kE4m3Nan;
    top = code > top ? code : top;
  }
  return top == kE4m3Nan;
}

}  // namespace mtl4::cpu::MTL4_ISA
