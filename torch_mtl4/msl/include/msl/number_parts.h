// metal_math: the parts of a floating-point number, and its neighbours.
#pragma once
#include "math.h"
namespace metal {
// Below one also where x - floor(x) rounds to it.
template <class T> MSL_INLINE T fract_(T x) {
  T rest = (T)((float)x - __builtin_floorf((float)x)), below_one = (T)(1 - (float)numeric_limits<T>::epsilon() / 2);
  return rest < below_one || rest != rest ? rest : below_one;
}
MSL_INLINE float fract(float x) { return fract_(x); }
MSL_INLINE half fract(half x) { return fract_(x); }
template <class T, int N> MSL_INLINE vec<T, N> fract(vec<T, N> v) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r.d[i] = fract(v.d[i]);
  return r;
}
MSL_INLINE float nextafter(float x, float y) { return __builtin_nextafterf(x, y); }
MSL_INLINE half nextafter(half x, half y) {
  if (x != x || y != y) return x + y;
  if (x == y) return y;
  short bits = __builtin_bit_cast(short, x);
  if (x == 0) return __builtin_bit_cast(half, (short)(y < 0 ? 0x8001 : 1));
  return __builtin_bit_cast(half, (short)(bits + ((x < y) == (x > 0) ? 1 : -1)));
}
MSL_INLINE float frexp(float x, int &e) { return __builtin_frexpf(x, &e); }
MSL_INLINE half frexp(half x, int &e) { return (half)__builtin_frexpf((float)x, &e); }
MSL_INLINE float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
MSL_INLINE half ldexp(half x, int e) { return (half)__builtin_ldexpf((float)x, e); }
MSL_INLINE int ilogb(float x) { return __builtin_ilogbf(x); }
MSL_INLINE int ilogb(half x) { return __builtin_ilogbf((float)x); }
MSL_INLINE float modf(float x, float &whole) { return __builtin_modff(x, &whole); }
MSL_INLINE half modf(half x, half &whole) {
  float w, rest = __builtin_modff((float)x, &w);
  whole = (half)w;
  return (half)rest;
}
template <class T, int N> MSL_INLINE vec<T, N> nextafter(vec<T, N> x, vec<T, N> y) {
  for (int i = 0; i < N; i++) x.d[i] = nextafter(x.d[i], y.d[i]);
  return x;
}
template <class T, int N> MSL_INLINE vec<T, N> frexp(vec<T, N> x, vec<int, N> &e) {
  for (int i = 0; i < N; i++) x.d[i] = frexp(x.d[i], e.d[i]);
  return x;
}
template <class T, int N> MSL_INLINE vec<T, N> ldexp(vec<T, N> x, vec<int, N> e) {
  for (int i = 0; i < N; i++) x.d[i] = ldexp(x.d[i], e.d[i]);
  return x;
}
template <class T, int N> MSL_INLINE vec<int, N> ilogb(vec<T, N> x) {
  vec<int, N> e;
  for (int i = 0; i < N; i++) e.d[i] = ilogb(x.d[i]);
  return e;
}
template <class T, int N> MSL_INLINE vec<T, N> modf(vec<T, N> x, vec<T, N> &whole) {
  for (int i = 0; i < N; i++) x.d[i] = modf(x.d[i], whole.d[i]);
  return x;
}
} // namespace metal
