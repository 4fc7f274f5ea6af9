// Names of Apple's compiler that kernels in the wild use although they are not documented.
#pragma once
#include "fast_precise.h"
#include "simdgroup.h"
#include "simdgroup_reduce.h"
#include "simdgroup_vote.h"
#define __METAL_MAYBE_FAST_MATH__ 0
#define __METAL_FAST_MATH__ 1
#define __METAL_PRECISE_MATH__ 2
#define __METAL_MEMORY_SCOPE_SYSTEM__ 5
#define MSL_X1(n) \
  MSL_INLINE float __metal_##n(float x, int) { return metal::n(x); }
MSL_X1(fabs)
MSL_X1(acos) MSL_X1(acosh) MSL_X1(asin) MSL_X1(asinh) MSL_X1(atan) MSL_X1(atanh) MSL_X1(ceil) MSL_X1(cos) MSL_X1(cosh)
    MSL_X1(cospi) MSL_X1(exp) MSL_X1(exp2) MSL_X1(exp10) MSL_X1(floor) MSL_X1(fract) MSL_X1(log) MSL_X1(log2)
        MSL_X1(log10) MSL_X1(rint) MSL_X1(round) MSL_X1(rsqrt) MSL_X1(sin) MSL_X1(sinh) MSL_X1(sinpi) MSL_X1(sqrt)
            MSL_X1(tan) MSL_X1(tanh) MSL_X1(tanpi) MSL_X1(trunc)
#define MSL_X2(n) \
  MSL_INLINE float __metal_##n(float x, float y, int) { return metal::n(x, y); }
                MSL_X2(atan2) MSL_X2(fmax) MSL_X2(fmin) MSL_X2(fmod) MSL_X2(pow) MSL_X2(powr) MSL_X2(divide)
                    MSL_X2(nextafter) MSL_INLINE float __metal_fma(float a, float b, float c) {
  return metal::fma(a, b, c);
}
MSL_INLINE float __metal_fmax3(float a, float b, float c, int) { return metal::max3(a, b, c); }
MSL_INLINE float __metal_fmin3(float a, float b, float c, int) { return metal::min3(a, b, c); }
MSL_INLINE float __metal_fmedian3(float a, float b, float c, int) { return metal::median3(a, b, c); }
MSL_INLINE float __metal_nextafter(float a, float b) { return metal::nextafter(a, b); }
MSL_INLINE float __metal_ldexp(float x, int k, int) { return __builtin_ldexpf(x, k); }
MSL_INLINE float __metal_frexp(float x, int *e) { return __builtin_frexpf(x, e); }
MSL_INLINE float __metal_modf(float x, float *i, int) { return __builtin_modff(x, i); }
inline ushort __metal_get_thread_index_in_simdgroup(ushort) { return (ushort)msl_lane(); }
inline uint __metal_get_thread_index_in_simdgroup(uint) { return msl_lane(); }
inline ushort __metal_get_simdgroup_index_in_threadgroup(ushort) { return (ushort)msl_simdgroup(); }

#define MSL_XS1(n) \
  template <class T> MSL_INLINE T __metal_##n(T x) { return metal::n(x); }
MSL_XS1(simd_sum)
MSL_XS1(simd_product) MSL_XS1(simd_min) MSL_XS1(simd_max)
    MSL_XS1(simd_prefix_inclusive_sum) MSL_XS1(simd_prefix_exclusive_sum) MSL_XS1(simd_prefix_inclusive_product)
        MSL_XS1(simd_prefix_exclusive_product)
#define MSL_XS2(n) \
  template <class T> MSL_INLINE T __metal_##n(T x, ushort k) { return metal::n(x, k); }
            MSL_XS2(simd_shuffle) MSL_XS2(simd_shuffle_xor) MSL_XS2(simd_shuffle_up) MSL_XS2(simd_shuffle_down)
                MSL_XS2(simd_shuffle_rotate_up) MSL_XS2(simd_shuffle_rotate_down)
                    MSL_XS2(simd_broadcast) template <class T>
                    MSL_INLINE T __metal_simd_shuffle_and_fill_up(T x, T f, ushort k, ushort m) {
  return metal::simd_shuffle_and_fill_up(x, f, k, m);
}
template <class T> MSL_INLINE T __metal_simd_shuffle_and_fill_down(T x, T f, ushort k, ushort m) {
  return metal::simd_shuffle_and_fill_down(x, f, k, m);
}
MSL_INLINE ushort __metal_get_simdgroup_size(ushort) { return 32; }
MSL_INLINE uint __metal_get_simdgroup_size(uint) { return 32; }
namespace metal {
MSL_INLINE uint get_simdgroup_size() { return 32; }
} // namespace metal
// Kernels in the wild define these for bfloat through float, where they mean nothing; what counts is that they compile.
#define MSL_BITS_OF_LANES(n) \
  template <class T> MSL_INLINE T __metal_##n(T x) { \
    if constexpr (msl::has_bits<T>) return metal::n(x); \
    else { \
      msl_fail("unsupported", #n " of floating-point values"); \
      return x; \
    } \
  }
MSL_BITS_OF_LANES(simd_and)
MSL_BITS_OF_LANES(simd_or)
MSL_BITS_OF_LANES(simd_xor)
#undef MSL_BITS_OF_LANES
