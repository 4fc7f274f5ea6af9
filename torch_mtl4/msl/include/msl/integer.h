// metal_integer.
#pragma once
#include "vector.h"
#include "limits.h"
#include "math.h"
namespace msl {
// Holds every sum of a product of two values of T and a third.
template <class T>
using wide = metal::conditional_t<sizeof(T) < 8, metal::conditional_t<metal::is_signed_v<T>, long, ulong>,
                                  metal::conditional_t<metal::is_signed_v<T>, __int128, unsigned __int128>>;
template <class T> constexpr int width = sizeof(T) * 8;

template <class T, class W> MSL_INLINE constexpr T saturated(W x) {
  constexpr W low = metal::numeric_limits<T>::min(), high = metal::numeric_limits<T>::max();
  return (T)(x < low ? low : x > high ? high : x);
}
// The `bits` lowest bits set, for 0 to all bits of U.
template <class U> MSL_INLINE constexpr U low_bits(uint bits) {
  return bits >= width<U> ? (U)~(U)0 : (U)(((ulong)1 << bits) - 1);
}
// x shifted by a number that may be the width of U.
template <class U> MSL_INLINE constexpr U up(U x, uint by) { return by >= width<U> ? (U)0 : (U)((ulong)x << by); }
template <class U> MSL_INLINE constexpr U down(U x, uint by) { return by >= width<U> ? (U)0 : (U)((ulong)x >> by); }
} // namespace msl

namespace metal {
// Functions of one, two or three scalars of a type T, and of vectors of them.
#define MSL_I1(n, R, ...) \
  template <class T> requires(is_integral_v<T>) MSL_INLINE constexpr R n(T x) { __VA_ARGS__ } \
  template <class T, int N> MSL_INLINE constexpr auto n(vec<T, N> x)->vec<decltype(n(x.d[0])), N> { \
    vec<decltype(n(x.d[0])), N> r{}; \
    for (int i = 0; i < N; i++) r.d[i] = n(x.d[i]); \
    return r; \
  }
#define MSL_I2(n, R, ...) \
  template <class T> requires(is_integral_v<T>) MSL_INLINE constexpr R n(T x, T y) { __VA_ARGS__ } \
  template <class T, int N> \
  MSL_INLINE constexpr auto n(vec<T, N> x, vec<T, N> y)->vec<decltype(n(x.d[0], y.d[0])), N> { \
    vec<decltype(n(x.d[0], y.d[0])), N> r{}; \
    for (int i = 0; i < N; i++) r.d[i] = n(x.d[i], y.d[i]); \
    return r; \
  }
#define MSL_I3(n, ...) \
  template <class T> requires(is_integral_v<T>) MSL_INLINE constexpr T n(T x, T y, T z) { __VA_ARGS__ } \
  template <class T, int N> MSL_INLINE constexpr vec<T, N> n(vec<T, N> x, vec<T, N> y, vec<T, N> z) { \
    for (int i = 0; i < N; i++) x.d[i] = n(x.d[i], y.d[i], z.d[i]); \
    return x; \
  }
MSL_I1(popcount, T, return (T)__builtin_popcountll((ulong)(make_unsigned_t<T>)x););
MSL_I1(clz, T,
       return x ? (T)(__builtin_clzll((ulong)(make_unsigned_t<T>)x) - (64 - msl::width<T>)) : (T)msl::width<T>;);
MSL_I1(ctz, T, return x ? (T)__builtin_ctzll((ulong)(make_unsigned_t<T>)x) : (T)msl::width<T>;);
MSL_I1(reverse_bits, T, return (T)(__builtin_bitreverse64((ulong)(make_unsigned_t<T>)x) >> (64 - msl::width<T>)););

MSL_I2(absdiff, make_unsigned_t<T>, using U = make_unsigned_t<T>; return x > y ? (U)x - (U)y : (U)y - (U)x;);
MSL_I2(addsat, T, return msl::saturated<T>((msl::wide<T>)x + y););
MSL_I2(subsat, T, T r; if (!__builtin_sub_overflow(x, y, &r)) return r;
       return x < y ? numeric_limits<T>::min() : numeric_limits<T>::max(););
MSL_I2(hadd, T, return (T)(((msl::wide<T>)x + y) >> 1););
MSL_I2(rhadd, T, return (T)(((msl::wide<T>)x + y + 1) >> 1););
MSL_I2(mulhi, T, return (T)(((msl::wide<T>)x * y) >> msl::width<T>););
MSL_I2(mul24, T, return (T)((make_unsigned_t<T>)x * (make_unsigned_t<T>)y););
MSL_I2(rotate, T, using U = make_unsigned_t<T>; uint k = (uint)y % msl::width<T>;
       return (T)(msl::up((U)x, k) | msl::down((U)x, msl::width<T> - k)););

MSL_I3(mad24, using U = make_unsigned_t<T>; return (T)((U)x * (U)y + (U)z););
MSL_I3(madhi, using U = make_unsigned_t<T>; return (T)((U)mulhi(x, y) + (U)z););
MSL_I3(madsat, return msl::saturated<T>((msl::wide<T>)x * y + z););

template <class T> requires(is_integral_v<T>) MSL_INLINE constexpr T extract_bits(T x, uint offset, uint bits) {
  using U = make_unsigned_t<T>;
  U field = msl::down((U)x, offset) & msl::low_bits<U>(bits);
  if (is_signed_v<T> && bits && (msl::down(field, bits - 1) & 1)) field |= (U)~msl::low_bits<U>(bits);
  return (T)field;
}
template <class T> requires(is_integral_v<T>)
MSL_INLINE constexpr T insert_bits(T base, T insert, uint offset, uint bits) {
  using U = make_unsigned_t<T>;
  U field = msl::low_bits<U>(bits);
  return (T)(((U)base & (U)~msl::up(field, offset)) | msl::up((U)((U)insert & field), offset));
}
template <class T, int N> MSL_INLINE constexpr vec<T, N> extract_bits(vec<T, N> x, uint offset, uint bits) {
  for (int i = 0; i < N; i++) x.d[i] = extract_bits(x.d[i], offset, bits);
  return x;
}
template <class T, int N>
MSL_INLINE constexpr vec<T, N> insert_bits(vec<T, N> base, vec<T, N> insert, uint offset, uint bits) {
  for (int i = 0; i < N; i++) base.d[i] = insert_bits(base.d[i], insert.d[i], offset, bits);
  return base;
}
#undef MSL_I1
#undef MSL_I2
#undef MSL_I3
} // namespace metal
