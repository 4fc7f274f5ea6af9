// metal_relational.
#pragma once
#include "vector.h"
#include "limits.h"
namespace msl {
// The asm hides where x comes from: clang 19 reads the sign of a bfloat at the place where a float has it.
MSL_INLINE bool sign_bit(float x) {
  asm("" : "+x"(x));
  return __builtin_bit_cast(uint, x) >> 31;
}
} // namespace msl

namespace metal {
// Every half and bfloat is exact in float; only isnormal has to know what it was.
#define MSL_B1_OF(T, n, e) \
  MSL_INLINE bool n(T v_) { \
    constexpr float least_normal_ = (float)numeric_limits<T>::min(); \
    float x = (float)v_; \
    return e; \
  }
#define MSL_B1(n, e) \
  MSL_B1_OF(float, n, e) \
  MSL_B1_OF(half, n, e) \
  MSL_B1_OF(bfloat, n, e) \
  template <class T, int N> MSL_INLINE vec<bool, N> n(vec<T, N> v) { \
    vec<bool, N> r; \
    for (int i_ = 0; i_ < N; i_++) r.d[i_] = n(v.d[i_]); \
    return r; \
  }
MSL_B1(isnan, __builtin_isnan(x));
MSL_B1(isinf, __builtin_isinf(x));
MSL_B1(isfinite, __builtin_isfinite(x));
MSL_B1(isnormal, __builtin_isfinite(x) && __builtin_fabsf(x) >= least_normal_);
MSL_B1(signbit, msl::sign_bit(x));
#define MSL_B2(n, e) \
  MSL_INLINE bool n(float x, float y) { return e; } \
  MSL_INLINE bool n(half x, half y) { return e; } \
  MSL_INLINE bool n(bfloat x, bfloat y) { return e; } \
  template <class T, int N> MSL_INLINE vec<bool, N> n(vec<T, N> x, vec<T, N> y) { \
    vec<bool, N> r; \
    for (int i = 0; i < N; i++) r.d[i] = n(x.d[i], y.d[i]); \
    return r; \
  }
MSL_B2(isordered, x == x && y == y);
MSL_B2(isunordered, x != x || y != y);
#undef MSL_B1
#undef MSL_B1_OF
#undef MSL_B2
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
