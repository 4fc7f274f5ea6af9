// metal_relational.
#pragma once
#include "vector.h"
namespace metal {
#define MSL_B1(n, e) \
  MSL_INLINE bool n(float x) { return e; } \
  MSL_INLINE bool n(half h_) { \
    float x = (float)h_; \
    return e; \
  } \
  template <class T, int N> MSL_INLINE vec<bool, N> n(vec<T, N> v) { \
    vec<bool, N> r; \
    for (int i_ = 0; i_ < N; i_++) r.d[i_] = n(v.d[i_]); \
    return r; \
  }
MSL_B1(isnan, __builtin_isnan(x))
MSL_B1(isinf, __builtin_isinf(x)) MSL_B1(isfinite, __builtin_isfinite(x)) MSL_B1(isnormal, __builtin_isnormal(x))
    MSL_B1(signbit, __builtin_signbit(x)) MSL_INLINE bool isunordered(float a, float b) {
  return __builtin_isunordered(a, b);
}
MSL_INLINE bool isordered(float a, float b) { return !__builtin_isunordered(a, b); }
MSL_INLINE bool isunordered(half a, half b) { return __builtin_isunordered((float)a, (float)b); }
template <class T, int N> MSL_INLINE vec<bool, N> isunordered(vec<T, N> a, vec<T, N> b) {
  vec<bool, N> r;
  for (int i = 0; i < N; i++) r.d[i] = isunordered(a.d[i], b.d[i]);
  return r;
}
template <int N> MSL_INLINE constexpr bool all(vec<bool, N> v) {
  bool r = true;
  for (int i = 0; i < N; i++) r = r && v.d[i];
  return r;
}
MSL_INLINE constexpr bool all(bool v) { return v; }
template <int N> MSL_INLINE constexpr bool any(vec<bool, N> v) {
  bool r = false;
  for (int i = 0; i < N; i++) r = r || v.d[i];
  return r;
}
MSL_INLINE constexpr bool any(bool v) { return v; }
template <class T> MSL_INLINE constexpr T select(T a, T b, bool c) { return c ? b : a; }
template <class T, int N> MSL_INLINE constexpr vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
  vec<T, N> r{};
  for (int i = 0; i < N; i++) r.d[i] = c.d[i] ? b.d[i] : a.d[i];
  return r;
}
} // namespace metal
