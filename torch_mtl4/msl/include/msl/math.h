// metal_math, metal_common: floating-point functions, each computed in float and rounded once.
#pragma once
#include "vector.h"
#include "limits.h"
namespace msl {
constexpr double PI = (double)3.14159265358979323846L; // a plain double literal would be a float here

// 1 / sqrt(x), through double so that it is rounded once.
MSL_INLINE float inverse_root(float x) { return (float)((double)1 / __builtin_sqrt((double)x)); }

// sin(pi x) and its like: x is reduced exactly before it is multiplied.
MSL_INLINE double reduced_to_one(float x) { return (double)x - 2 * __builtin_rint((double)x / 2); }
MSL_INLINE double sine_of_pi_reduced(double r) {
  double a = __builtin_fabs(r);
  return __builtin_copysign(__builtin_sin(PI * (a > (double)0.5f ? 1 - a : a)), r);
}
MSL_INLINE double cosine_of_pi_reduced(double r) { return __builtin_sin(PI * ((double)0.5f - __builtin_fabs(r))); }
MSL_INLINE float sine_of_pi(float x) { return (float)sine_of_pi_reduced(reduced_to_one(x)); }
MSL_INLINE float cosine_of_pi(float x) { return (float)cosine_of_pi_reduced(reduced_to_one(x)); }
MSL_INLINE float tangent_of_pi(float x) {
  double r = reduced_to_one(x);
  return (float)(sine_of_pi_reduced(r) / cosine_of_pi_reduced(r));
}
} // namespace msl

namespace metal {
// A function of two vectors, or of a vector and a scalar, from that of two scalars.
#define MSL_ELEMENTWISE_BINARY(name) \
  template <class T, int N> MSL_INLINE constexpr vec<T, N> name(vec<T, N> a, vec<T, N> b) { \
    vec<T, N> r{}; \
    for (int i = 0; i < N; i++) r.d[i] = name(a.d[i], b.d[i]); \
    return r; \
  } \
  template <class T, int N> MSL_INLINE constexpr vec<T, N> name(vec<T, N> a, type_identity_t<T> b) { \
    vec<T, N> r{}; \
    for (int i = 0; i < N; i++) r.d[i] = name(a.d[i], b); \
    return r; \
  } \
  template <class T, int N> MSL_INLINE constexpr vec<T, N> name(type_identity_t<T> a, vec<T, N> b) { \
    vec<T, N> r{}; \
    for (int i = 0; i < N; i++) r.d[i] = name(a, b.d[i]); \
    return r; \
  }

// A function of float x, and through it of half and of vectors.
#define MSL_UNARY(name, value) \
  MSL_INLINE float name(float x) { return value; } \
  MSL_INLINE half name(half h) { \
    float x = (float)h; \
    return (half)(value); \
  } \
  template <class T, int N> MSL_INLINE vec<T, N> name(vec<T, N> v) { \
    vec<T, N> r; \
    for (int i = 0; i < N; i++) r.d[i] = name(v.d[i]); \
    return r; \
  }
MSL_UNARY(exp, __builtin_expf(x))
MSL_UNARY(exp2, __builtin_exp2f(x))
MSL_UNARY(exp10, __builtin_powf(10.f, x))
MSL_UNARY(log, __builtin_logf(x))
MSL_UNARY(log2, __builtin_log2f(x))
MSL_UNARY(log10, __builtin_log10f(x))
MSL_UNARY(sqrt, __builtin_sqrtf(x))
MSL_UNARY(rsqrt, msl::inverse_root(x))
MSL_UNARY(sin, __builtin_sinf(x))
MSL_UNARY(cos, __builtin_cosf(x))
MSL_UNARY(tan, __builtin_tanf(x))
MSL_UNARY(sinpi, msl::sine_of_pi(x))
MSL_UNARY(cospi, msl::cosine_of_pi(x))
MSL_UNARY(tanpi, msl::tangent_of_pi(x))
MSL_UNARY(sinh, __builtin_sinhf(x))
MSL_UNARY(cosh, __builtin_coshf(x))
MSL_UNARY(tanh, __builtin_tanhf(x))
MSL_UNARY(asin, __builtin_asinf(x))
MSL_UNARY(acos, __builtin_acosf(x))
MSL_UNARY(atan, __builtin_atanf(x))
MSL_UNARY(asinh, __builtin_asinhf(x))
MSL_UNARY(acosh, __builtin_acoshf(x))
MSL_UNARY(atanh, __builtin_atanhf(x))
MSL_UNARY(fabs, __builtin_fabsf(x))
MSL_UNARY(floor, __builtin_floorf(x))
MSL_UNARY(ceil, __builtin_ceilf(x))
MSL_UNARY(round, __builtin_roundf(x))
MSL_UNARY(rint, __builtin_rintf(x))
MSL_UNARY(trunc, __builtin_truncf(x))
MSL_UNARY(sign, x > 0 ? 1.f : x < 0 ? -1.f : x == 0 ? x : 0.f)
MSL_UNARY(saturate, x > 0 ? (x < 1 ? x : 1.f) : 0.f)
#undef MSL_UNARY

// A function of floats x and y, and through it of halves and of vectors.
#define MSL_BINARY(name, value) \
  MSL_INLINE float name(float x, float y) { return value; } \
  MSL_INLINE half name(half a, half b) { \
    float x = (float)a, y = (float)b; \
    return (half)(value); \
  } \
  MSL_ELEMENTWISE_BINARY(name)
MSL_BINARY(pow, __builtin_powf(x, y))
MSL_BINARY(powr, __builtin_powf(x, y))
MSL_BINARY(atan2, __builtin_atan2f(x, y))
MSL_BINARY(fmod, __builtin_fmodf(x, y))
MSL_BINARY(fmin, y < x || x != x ? y : x) // of equal operands the first
MSL_BINARY(fmax, x < y || x != x ? y : x)
MSL_BINARY(copysign, __builtin_copysignf(x, y))
MSL_BINARY(step, y < x ? 0.f : 1.f)
MSL_BINARY(fdim, __builtin_fdimf(x, y))
MSL_BINARY(divide, x / y)
#undef MSL_BINARY

#define MSL_MIN_MAX(type, a_is_nan) \
  MSL_INLINE constexpr type min(type a, type b) { return (a_is_nan) ? b : (b < a) ? b : a; } \
  MSL_INLINE constexpr type max(type a, type b) { return (a_is_nan) ? b : (a < b) ? b : a; } \
  MSL_INLINE constexpr type clamp(type x, type low, type high) { return min(max(x, low), high); }
MSL_MIN_MAX(char, false)
MSL_MIN_MAX(signed char, false)
MSL_MIN_MAX(uchar, false)
MSL_MIN_MAX(short, false)
MSL_MIN_MAX(ushort, false)
MSL_MIN_MAX(int, false)
MSL_MIN_MAX(uint, false)
MSL_MIN_MAX(long, false)
MSL_MIN_MAX(ulong, false)
MSL_MIN_MAX(long long, false)
MSL_MIN_MAX(unsigned long long, false)
MSL_MIN_MAX(float, a != a) // if one operand is a NaN, the other is the result
MSL_MIN_MAX(half, a != a)
#undef MSL_MIN_MAX
MSL_ELEMENTWISE_BINARY(min)
MSL_ELEMENTWISE_BINARY(max)
#undef MSL_ELEMENTWISE_BINARY
template <class T> MSL_INLINE constexpr T min3(T a, T b, T c) { return min(a, min(b, c)); }
template <class T> MSL_INLINE constexpr T max3(T a, T b, T c) { return max(a, max(b, c)); }
template <class T> MSL_INLINE constexpr T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }
template <class T> MSL_INLINE T fmin3(T a, T b, T c) { return fmin(a, fmin(b, c)); }
template <class T> MSL_INLINE T fmax3(T a, T b, T c) { return fmax(a, fmax(b, c)); }
template <class T> MSL_INLINE T fmedian3(T a, T b, T c) { return fmax(fmin(a, b), fmin(fmax(a, b), c)); }
template <class T, int N>
MSL_INLINE constexpr vec<T, N> clamp(vec<T, N> x, type_identity_t<vec<T, N>> low, type_identity_t<vec<T, N>> high) {
  return min(max(x, low), high);
}

#define MSL_ABS_SIGNED(type) \
  MSL_INLINE constexpr type abs(type x) { return x < 0 ? (type)(0 - (make_unsigned_t<type>)x) : x; }
MSL_ABS_SIGNED(char)
MSL_ABS_SIGNED(signed char)
MSL_ABS_SIGNED(short)
MSL_ABS_SIGNED(int)
MSL_ABS_SIGNED(long)
MSL_ABS_SIGNED(long long)
#undef MSL_ABS_SIGNED
MSL_INLINE constexpr uchar abs(uchar x) { return x; }
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
template <class T> MSL_INLINE T sincos(T x, T &c) {
  c = cos(x);
  return sin(x);
}
} // namespace metal
