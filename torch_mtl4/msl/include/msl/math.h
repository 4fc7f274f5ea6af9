// metal_math, metal_common: floating-point functions, each computed in float and rounded once.
#pragma once
#include "vector.h"
#include "limits.h"
namespace metal {
// unary float functions: float, half and bfloat through float, vectors elementwise
#define MSL_F1(n, e) \
  MSL_INLINE float n(float x) { return e; } \
  MSL_INLINE half n(half h_) { \
    float x = (float)h_; \
    return (half)(e); \
  } \
  template <class T, int N> MSL_INLINE vec<T, N> n(vec<T, N> v) { \
    vec<T, N> r; \
    for (int i_ = 0; i_ < N; i_++) r.d[i_] = n(v.d[i_]); \
    return r; \
  }
#define MSL_F1_ALL \
  MSL_F1(exp, __builtin_expf(x)) \
  MSL_F1(exp2, __builtin_exp2f(x)) MSL_F1(exp10, __builtin_powf(10.f, x)) MSL_F1(log, __builtin_logf(x)) \
      MSL_F1(log2, __builtin_log2f(x)) MSL_F1(log10, __builtin_log10f(x)) MSL_F1(sqrt, __builtin_sqrtf(x)) \
          MSL_F1(rsqrt, 1.0f / __builtin_sqrtf(x)) MSL_F1(sin, __builtin_sinf(x)) MSL_F1(cos, __builtin_cosf(x)) \
              MSL_F1(tan, __builtin_tanf(x)) MSL_F1(sinh, __builtin_sinhf(x)) MSL_F1(cosh, __builtin_coshf(x)) \
                  MSL_F1(tanh, __builtin_tanhf(x)) MSL_F1(asin, __builtin_asinf(x)) MSL_F1(acos, __builtin_acosf(x)) \
                      MSL_F1(atan, __builtin_atanf(x)) MSL_F1(asinh, __builtin_asinhf(x)) MSL_F1(acosh, \
                                                                                                 __builtin_acoshf(x)) \
                          MSL_F1(atanh, __builtin_atanhf(x)) MSL_F1(fabs, __builtin_fabsf(x)) \
                              MSL_F1(floor, __builtin_floorf(x)) MSL_F1(ceil, __builtin_ceilf(x)) \
                                  MSL_F1(round, __builtin_roundf(x)) MSL_F1(rint, __builtin_rintf(x)) \
                                      MSL_F1(trunc, __builtin_truncf(x)) MSL_F1(fract, x - __builtin_floorf(x)) \
                                          MSL_F1(sign, (x > 0) ? 1.f : (x < 0 ? -1.f : 0.f)) \
                                              MSL_F1(saturate, x < 0 ? 0.f : (x > 1 ? 1.f : x)) \
                                                  MSL_F1(sinpi, __builtin_sinf(x * 3.14159265358979323846f)) \
                                                      MSL_F1(cospi, __builtin_cosf(x * 3.14159265358979323846f)) \
                                                          MSL_F1(tanpi, __builtin_tanf(x * 3.14159265358979323846f))
#define MSL_F2(n, e) \
  MSL_INLINE float n(float x, float y) { return e; } \
  MSL_INLINE half n(half a_, half b_) { \
    float x = (float)a_, y = (float)b_; \
    return (half)(e); \
  } \
  template <class T, int N> MSL_INLINE vec<T, N> n(vec<T, N> a, vec<T, N> b) { \
    vec<T, N> r; \
    for (int i_ = 0; i_ < N; i_++) r.d[i_] = n(a.d[i_], b.d[i_]); \
    return r; \
  } \
  template <class T, int N> MSL_INLINE vec<T, N> n(vec<T, N> a, type_identity_t<T> b) { \
    vec<T, N> r; \
    for (int i_ = 0; i_ < N; i_++) r.d[i_] = n(a.d[i_], b); \
    return r; \
  } \
  template <class T, int N> MSL_INLINE vec<T, N> n(type_identity_t<T> a, vec<T, N> b) { \
    vec<T, N> r; \
    for (int i_ = 0; i_ < N; i_++) r.d[i_] = n(a, b.d[i_]); \
    return r; \
  }
#define MSL_F2_ALL \
  MSL_F2(pow, __builtin_powf(x, y)) \
  MSL_F2(powr, __builtin_powf(x, y)) MSL_F2(atan2, __builtin_atan2f(x, y)) MSL_F2(fmod, __builtin_fmodf(x, y)) \
      MSL_F2(fmin, __builtin_fminf(x, y)) MSL_F2(fmax, __builtin_fmaxf(x, y)) \
          MSL_F2(copysign, __builtin_copysignf(x, y)) MSL_F2(step, y < x ? 0.f : 1.f) \
              MSL_F2(fdim, __builtin_fdimf(x, y)) MSL_F2(nextafter, __builtin_nextafterf(x, y))
MSL_F1_ALL MSL_F2_ALL
#define MSL_MM(t) \
  MSL_INLINE constexpr t min(t a, t b) { return b < a ? b : a; } \
  MSL_INLINE constexpr t max(t a, t b) { return a < b ? b : a; } \
  MSL_INLINE constexpr t clamp(t x, t lo, t hi) { return min(max(x, lo), hi); }
MSL_MM(char) MSL_MM(signed char) MSL_MM(uchar) MSL_MM(short) MSL_MM(ushort) MSL_MM(int) MSL_MM(uint) MSL_MM(long)
    MSL_MM(ulong) MSL_MM(long long) MSL_MM(unsigned long long)
// Metal: min/max return the other operand if one is a NaN
#define MSL_MMF(t) \
  MSL_INLINE constexpr t min(t a, t b) { return (a != a) ? b : ((b < a) ? b : a); } \
  MSL_INLINE constexpr t max(t a, t b) { return (a != a) ? b : ((a < b) ? b : a); } \
  MSL_INLINE constexpr t clamp(t x, t lo, t hi) { return min(max(x, lo), hi); }
        MSL_MMF(float) MSL_MMF(half)
#define MSL_V2(n) \
  template <class T, int N> MSL_INLINE constexpr vec<T, N> n(vec<T, N> a, vec<T, N> b) { \
    vec<T, N> r{}; \
    for (int i = 0; i < N; i++) r.d[i] = n(a.d[i], b.d[i]); \
    return r; \
  } \
  template <class T, int N> MSL_INLINE constexpr vec<T, N> n(vec<T, N> a, type_identity_t<T> b) { \
    vec<T, N> r{}; \
    for (int i = 0; i < N; i++) r.d[i] = n(a.d[i], b); \
    return r; \
  } \
  template <class T, int N> MSL_INLINE constexpr vec<T, N> n(type_identity_t<T> a, vec<T, N> b) { \
    vec<T, N> r{}; \
    for (int i = 0; i < N; i++) r.d[i] = n(a, b.d[i]); \
    return r; \
  }
            MSL_V2(min) MSL_V2(max) template <class T>
            MSL_INLINE constexpr T min3(T a, T b, T c) {
  return min(a, min(b, c));
}
template <class T> MSL_INLINE constexpr T max3(T a, T b, T c) { return max(a, max(b, c)); }
template <class T> MSL_INLINE constexpr T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }
template <class T, int N>
MSL_INLINE constexpr vec<T, N> clamp(vec<T, N> x, type_identity_t<vec<T, N>> lo, type_identity_t<vec<T, N>> hi) {
  return min(max(x, lo), hi);
}
#define MSL_ABS(t, u) \
  MSL_INLINE constexpr t abs(t x) { return x < 0 ? (t) - x : x; }
MSL_ABS(char, uchar)
MSL_ABS(signed char, uchar) MSL_ABS(short, ushort) MSL_ABS(int, uint) MSL_ABS(long, ulong)
    MSL_ABS(long long, unsigned long long) MSL_INLINE constexpr uchar abs(uchar x) {
  return x;
}
MSL_INLINE constexpr ushort abs(ushort x) { return x; }
MSL_INLINE constexpr uint abs(uint x) { return x; }
MSL_INLINE constexpr ulong abs(ulong x) { return x; }
MSL_INLINE float abs(float x) { return __builtin_fabsf(x); }
MSL_INLINE half abs(half x) { return (half)__builtin_fabsf((float)x); }
template <class T, int N> MSL_INLINE vec<T, N> abs(vec<T, N> v) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r.d[i] = abs(v.d[i]);
  return r;
}
MSL_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MSL_INLINE half fma(half a, half b, half c) { return (half)__builtin_fma((double)a, (double)b, (double)c); }
template <class T, int N> MSL_INLINE vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r.d[i] = fma(a.d[i], b.d[i], c.d[i]);
  return r;
}
template <class T> MSL_INLINE T mix(T x, T y, T a) { return x + (y - x) * a; }
template <class T, int N> MSL_INLINE vec<T, N> mix(vec<T, N> x, vec<T, N> y, T a) { return x + (y - x) * vec<T, N>(a); }
template <class T> MSL_INLINE T smoothstep(T a, T b, T x) {
  T t = saturate((x - a) / (b - a));
  return t * t * (T(3) - T(2) * t);
}
template <class T> MSL_INLINE T sincos_(T x, T &c) {
  c = cos(x);
  return sin(x);
}
template <class T> MSL_INLINE T sincos(T x, T &c) {
  c = cos(x);
  return sin(x);
}
MSL_INLINE float frexp(float x, int &e) { return __builtin_frexpf(x, &e); }
MSL_INLINE float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
MSL_INLINE half ldexp(half x, int e) { return (half)__builtin_ldexpf((float)x, e); }
MSL_INLINE int ilogb(float x) { return __builtin_ilogbf(x); }
MSL_INLINE float modf(float x, float &i) { return __builtin_modff(x, &i); }
} // namespace metal
