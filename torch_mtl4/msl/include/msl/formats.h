// Element formats without a C++ type: 2-, 4- and 8-bit integers, FP8, FP4 and the scale format UE8M0. A format is only
// a tag; its values live as codes in bytes. The four float formats are those of the OCP specifications.
//
// Decoding is exact. Encoding rounds to nearest, ties to even; what Apple's compiler does with values out of range is
// not documented, and reports disagree, so the choice here is: e4m3 (no infinity), e2m1 and integers saturate, e5m2
// overflows to infinity, a NaN becomes a NaN or, where there is none, zero; subnormals are kept. UE8M0 takes the
// nearest power of two (ties up), and NaN for what has none (negative, infinite, NaN).
#pragma once
#include "limits.h"
#include "tier.h"
#include "traits.h"
namespace msl {
constexpr uint float_bits(float x) { return __builtin_bit_cast(uint, x); }
constexpr float power_of_two(int e) {
  return e < -126 ? __builtin_bit_cast(float, 1u << (e + 149)) : __builtin_bit_cast(float, (uint)(e + 127) << 23);
}
// Nearest integer of a number below 2^23, ties to even.
constexpr uint round_even(float x) {
  uint n = (uint)x;
  float rest = x - (float)n;
  return n + (rest > 0.5f || (rest == 0.5f && (n & 1)));
}

// Sign, E exponent and M mantissa bits, with subnormals. LARGEST is the code of the greatest finite magnitude,
// OVERFLOW the one of magnitudes that round above it, NAN_CODE 0 if there is no NaN.
template <int E, int M, uint LARGEST, uint OVERFLOW, uint NAN_CODE> struct FloatFormat {
  using scalar = float;
  static constexpr int bits = 1 + E + M, bias = (1 << (E - 1)) - 1;
  static constexpr uint sign = 1u << (E + M);

  static constexpr float decode(uint code) {
    uint magnitude = code & (sign - 1);
    float value;
    if (NAN_CODE && magnitude > LARGEST && magnitude != OVERFLOW) value = __builtin_nanf("");
    else if (magnitude > LARGEST) value = __builtin_inff();
    else {
      int exponent = (int)(magnitude >> M);
      uint mantissa = magnitude & ((1u << M) - 1);
      if (exponent) mantissa += 1u << M;
      value = (float)mantissa * power_of_two((exponent ? exponent : 1) - bias - M);
    }
    return code & sign ? -value : value;
  }
  static constexpr uint encode(float x) {
    uint u = float_bits(x), s = u >> 31 ? sign : 0;
    u &= 0x7fffffff;
    if (u > 0x7f800000) return NAN_CODE ? s | NAN_CODE : 0;
    int exponent = (int)(u >> 23) - 127;
    if (exponent > bias + 1) return s | OVERFLOW;
    if (exponent < 1 - bias) exponent = 1 - bias;
    float quanta = __builtin_bit_cast(float, u) * power_of_two(M - exponent);
    uint code = round_even(quanta) + ((uint)(exponent + bias - 1) << M);
    return s | (code > LARGEST ? OVERFLOW : code);
  }
  static constexpr bool fits(float x) {
    return !(OVERFLOW == LARGEST && (x > decode(LARGEST) || -x > decode(LARGEST)));
  }
};

template <int BITS, bool SIGNED> struct IntegerFormat {
  using scalar = int;
  static constexpr int bits = BITS;
  static constexpr int low = SIGNED ? -(1 << (BITS - 1)) : 0, high = low + (1 << BITS) - 1;

  static constexpr int decode(uint code) {
    code &= (1u << BITS) - 1;
    return (int)code > high ? (int)code - (1 << BITS) : (int)code;
  }
  static constexpr uint encode(float x) {
    if (x != x) return 0;
    int n = x <= low ? low : x >= high ? high : x < 0 ? -(int)round_even(-x) : (int)round_even(x);
    return (uint)n & ((1u << BITS) - 1);
  }
  static constexpr bool fits(float x) { return x >= low && x <= high; }
};

struct fp8_e4m3 : FloatFormat<4, 3, 0x7e, 0x7e, 0x7f> {
  static constexpr const char *name = "metal_fp8_e4m3_format";
};
struct fp8_e5m2 : FloatFormat<5, 2, 0x7b, 0x7c, 0x7e> {
  static constexpr const char *name = "metal_fp8_e5m2_format";
};
struct fp4_e2m1 : FloatFormat<2, 1, 0x7, 0x7, 0> {
  static constexpr const char *name = "metal_fp4_e2m1_format";
};
struct fp8_ue8m0 {
  using scalar = float;
  static constexpr int bits = 8;
  static constexpr const char *name = "metal_fp8_ue8m0_format";
  static constexpr float decode(uint code) { return code == 255 ? __builtin_nanf("") : power_of_two((int)code - 127); }
  static constexpr uint encode(float x) {
    uint u = float_bits(x);
    if (u >= 0x7f800000) return 255;
    if (u < 0x00600000) return 0; // below 1.5 * 2^-127
    uint code = (u + 0x00400000) >> 23;
    return code == 0 ? 1 : code;
  }
  static constexpr bool fits(float) { return true; }
};
struct int2b : IntegerFormat<2, true> {
  static constexpr const char *name = "int2b_format";
};
struct uint2b : IntegerFormat<2, false> {
  static constexpr const char *name = "uint2b_format";
};
struct int4b : IntegerFormat<4, true> {
  static constexpr const char *name = "int4b_format";
};
struct uint4b : IntegerFormat<4, false> {
  static constexpr const char *name = "uint4b_format";
};
struct int8b : IntegerFormat<8, true> {
  static constexpr const char *name = "int8b_format";
};
struct uint8b : IntegerFormat<8, false> {
  static constexpr const char *name = "uint8b_format";
};

template <class T>
concept Format = requires {
  T::bits;
  T::decode(0);
};

// The code of element `i` of a packed array: the first element is in the low bits of the first byte.
template <Format F> constexpr uint packed_code(const uchar *bytes, long i) {
  if constexpr (F::bits == 8) return bytes[i];
  else return bytes[i * F::bits >> 3] >> (i * F::bits & 7) & ((1u << F::bits) - 1);
}

template <Format F> struct DecodeTable {
  typename F::scalar value[1 << F::bits];
  constexpr DecodeTable() : value{} {
    for (uint code = 0; code < 1u << F::bits; code++) value[code] = F::decode(code);
  }
};
template <Format F> inline constexpr DecodeTable<F> decode_table;
} // namespace msl

namespace metal {
using int4b_format MSL_SINCE_26_4 = msl::int4b;
using uint4b_format MSL_SINCE_26_4 = msl::uint4b;
using int2b_format MSL_SINCE_27 = msl::int2b;
using uint2b_format MSL_SINCE_27 = msl::uint2b;
using int8b_format MSL_SINCE_27 = msl::int8b;
using uint8b_format MSL_SINCE_27 = msl::uint8b;
using metal_fp4_e2m1_format MSL_SINCE_27 = msl::fp4_e2m1;
using metal_fp8_e4m3_format MSL_SINCE_27 = msl::fp8_e4m3;
using metal_fp8_e5m2_format MSL_SINCE_27 = msl::fp8_e5m2;
using metal_fp8_ue8m0_format MSL_SINCE_27 = msl::fp8_ue8m0;
} // namespace metal
