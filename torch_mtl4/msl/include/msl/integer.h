// metal_integer, metal_pack.
#pragma once
#include "vector.h"
#include "limits.h"
#include "math.h"
namespace metal {
// integers
template <class T> MSL_INLINE constexpr T popcount(T x) {
  return (T)__builtin_popcountll((unsigned long long)(make_unsigned_t<T>)x);
}
template <class T> MSL_INLINE constexpr T clz(T x) {
  using U = make_unsigned_t<T>;
  return x ? (T)(__builtin_clzll((unsigned long long)(U)x) - (64 - sizeof(T) * 8)) : (T)(sizeof(T) * 8);
}
template <class T> MSL_INLINE constexpr T ctz(T x) {
  return x ? (T)__builtin_ctzll((unsigned long long)(make_unsigned_t<T>)x) : (T)(sizeof(T) * 8);
}
template <class T> MSL_INLINE constexpr T reverse_bits(T x) {
  T r = 0;
  for (unsigned i = 0; i < sizeof(T) * 8; i++)
    if ((x >> i) & 1) r |= T(1) << (sizeof(T) * 8 - 1 - i);
  return r;
}
template <class T> MSL_INLINE constexpr T rotate(T x, T n) {
  using U = make_unsigned_t<T>;
  unsigned b = sizeof(T) * 8, k = (unsigned)n % b;
  return k ? (T)(((U)x << k) | ((U)x >> (b - k))) : x;
}
template <class T, int N> MSL_INLINE constexpr vec<T, N> rotate(vec<T, N> x, vec<T, N> n) {
  vec<T, N> r{};
  for (int i = 0; i < N; i++) r.d[i] = rotate(x.d[i], n.d[i]);
  return r;
}
MSL_INLINE constexpr uint mulhi(uint a, uint b) { return (uint)(((unsigned long long)a * b) >> 32); }
MSL_INLINE constexpr int mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
MSL_INLINE constexpr ulong mulhi(ulong a, ulong b) { return (ulong)(((unsigned __int128)a * b) >> 64); }
MSL_INLINE constexpr long mulhi(long a, long b) { return (long)(((__int128)a * b) >> 64); }
template <class T> MSL_INLINE constexpr T mad24(T a, T b, T c) { return a * b + c; }
template <class T> MSL_INLINE constexpr T mul24(T a, T b) { return a * b; }
template <class T> MSL_INLINE constexpr T madhi(T a, T b, T c) { return mulhi(a, b) + c; }
template <class T> MSL_INLINE constexpr T absdiff(T a, T b) { return a > b ? a - b : b - a; }
template <class T> MSL_INLINE constexpr T extract_bits(T x, uint off, uint bits) {
  using U = make_unsigned_t<T>;
  if (!bits) return 0;
  U u = (U)x >> off;
  if (bits < sizeof(T) * 8) u &= ((U)1 << bits) - 1;
  return (T)u;
}
template <class T> MSL_INLINE constexpr T insert_bits(T b, T i, uint off, uint bits) {
  using U = make_unsigned_t<T>;
  U m = bits >= sizeof(T) * 8 ? ~(U)0 : (((U)1 << bits) - 1);
  return (T)(((U)b & ~(m << off)) | (((U)i & m) << off));
}
template <class T> MSL_INLINE constexpr T addsat(T a, T b) {
  T r;
  if (__builtin_add_overflow(a, b, &r)) return b > 0 ? numeric_limits<T>::max() : numeric_limits<T>::min();
  return r;
}
// packing
MSL_INLINE float4 unpack_unorm4x8_to_float(uint x) {
  return {(x & 255) / 255.f, (x >> 8 & 255) / 255.f, (x >> 16 & 255) / 255.f, (x >> 24) / 255.f};
}
MSL_INLINE half2 as_half2_(uint x) { return __builtin_bit_cast(half2, x); }
} // namespace metal
