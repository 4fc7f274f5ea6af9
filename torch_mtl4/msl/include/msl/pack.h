// metal_pack: normalized integers in a word, the first component in its low bits.
#pragma once
#include "math.h"
namespace msl {
// Out of range saturates, a NaN becomes 0, ties go to the even code.
MSL_INLINE float normalized_code(float x, float low, float scale) {
  x = x != x ? 0 : x < low ? low : x > 1 ? 1 : x;
  return __builtin_rintf(x * scale);
}
MSL_INLINE uint unorm_code(float x, int bits) { return (uint)normalized_code(x, 0, (float)((1 << bits) - 1)); }
MSL_INLINE uint snorm_code(float x, int bits) {
  return (uint)(int)normalized_code(x, -1, (float)((1 << (bits - 1)) - 1)) & ((1u << bits) - 1);
}
MSL_INLINE float unorm_value(uint word, int at, int bits) {
  return (float)(word >> at & ((1u << bits) - 1)) / (float)((1 << bits) - 1);
}
MSL_INLINE float snorm_value(uint word, int at, int bits) {
  int code = (int)(word << (32 - bits - at)) >> (32 - bits);
  return metal::max((float)code / (float)((1 << (bits - 1)) - 1), -1.0f);
}
// Through double, since a float would lose in the power what it rounded before.
MSL_INLINE float linear_of_srgb(float x) {
  return x <= 0.04045f ? x / 12.92f : (float)__builtin_pow(((double)x + 0.055L) / 1.055L, (double)2.4L);
}
MSL_INLINE float srgb_of_linear(float x) {
  return x <= 0.0031308f ? x * 12.92f : (float)(1.055L * __builtin_pow((double)x, (double)(1 / 2.4L)) - 0.055L);
}
} // namespace msl

namespace metal {
// R bits of every component, from the low bits on; the name says the format, the scalar type and the direction.
#define MSL_PACKED(word, T, kind, format, N, ...) \
  MSL_INLINE vec<T, N> unpack_##kind##format##_to_##T(word packed) { \
    constexpr int bits[] = {__VA_ARGS__}; \
    vec<T, N> v; \
    for (int i = 0, at = 0; i < N; at += bits[i++]) v.d[i] = (T)msl::kind##_value(packed, at, bits[i]); \
    return v; \
  } \
  MSL_INLINE word pack_##T##_to_##kind##format(vec<T, N> v) { \
    constexpr int bits[] = {__VA_ARGS__}; \
    uint packed = 0; \
    for (int i = 0, at = 0; i < N; at += bits[i++]) packed |= msl::kind##_code((float)v.d[i], bits[i]) << at; \
    return (word)packed; \
  }
#define MSL_PACKED_AS(T) \
  MSL_PACKED(uint, T, unorm, 4x8, 4, 8, 8, 8, 8); \
  MSL_PACKED(uint, T, snorm, 4x8, 4, 8, 8, 8, 8); \
  MSL_PACKED(uint, T, unorm, 2x16, 2, 16, 16); \
  MSL_PACKED(uint, T, snorm, 2x16, 2, 16, 16); \
  MSL_PACKED(uint, T, unorm, 10a2, 4, 10, 10, 10, 2); \
  MSL_INLINE vec<T, 4> unpack_unorm4x8_srgb_to_##T(uint packed) { \
    float4 v = unpack_unorm4x8_to_float(packed); \
    for (int i = 0; i < 3; i++) v.d[i] = msl::linear_of_srgb(v.d[i]); \
    return vec<T, 4>(v); \
  } \
  MSL_INLINE uint pack_##T##_to_srgb_unorm4x8(vec<T, 4> v) { \
    float4 encoded(v); \
    for (int i = 0; i < 3; i++) encoded.d[i] = msl::srgb_of_linear(encoded.d[i]); \
    return pack_float_to_unorm4x8(encoded); \
  }
MSL_PACKED_AS(float);
MSL_PACKED_AS(half);
#undef MSL_PACKED_AS
#undef MSL_PACKED
} // namespace metal
