// Functions of numbers, for the strict pass: math, integers, relations, geometry, packing.
#pragma once
namespace metal {
#define MSL_UNARY(n) template <class T> T n(T);
#define MSL_BINARY(n) \
  template <class T> T n(T, T); \
  template <class T, int N> vec<T, N> n(vec<T, N>, T);
#define MSL_TERNARY(n) template <class T> T n(T, T, T);
// A vector of answers is one of char: clang's vectors of bool have no components.
#define MSL_RELATION(n) \
  template <class T> bool n(T); \
  template <class T, int N> vec<char, N> n(vec<T, N>);
#define MSL_RELATION_OF_TWO(n) \
  template <class T> bool n(T, T); \
  template <class T, int N> vec<char, N> n(vec<T, N>, vec<T, N>);
#define MSL_MATH \
  MSL_UNARY(exp) \
  MSL_UNARY(exp2) \
  MSL_UNARY(exp10) \
  MSL_UNARY(log) \
  MSL_UNARY(log2) \
  MSL_UNARY(log10) \
  MSL_UNARY(sqrt) \
  MSL_UNARY(rsqrt) \
  MSL_UNARY(sin) \
  MSL_UNARY(cos) \
  MSL_UNARY(tan) \
  MSL_UNARY(asin) \
  MSL_UNARY(acos) \
  MSL_UNARY(atan) \
  MSL_UNARY(sinh) \
  MSL_UNARY(cosh) \
  MSL_UNARY(tanh) \
  MSL_UNARY(fabs) \
  MSL_UNARY(abs) \
  MSL_UNARY(floor) \
  MSL_UNARY(ceil) \
  MSL_UNARY(round) \
  MSL_UNARY(rint) \
  MSL_UNARY(trunc) \
  MSL_UNARY(fract) \
  MSL_UNARY(sign) \
  MSL_UNARY(saturate) \
  MSL_UNARY(acosh) \
  MSL_UNARY(asinh) \
  MSL_UNARY(atanh) \
  MSL_UNARY(sinpi) \
  MSL_UNARY(cospi) \
  MSL_UNARY(tanpi) \
  MSL_BINARY(min) \
  MSL_BINARY(max) \
  MSL_BINARY(pow) \
  MSL_BINARY(powr) \
  MSL_BINARY(fmin) \
  MSL_BINARY(fmax) \
  MSL_BINARY(fmod) \
  MSL_BINARY(atan2) \
  MSL_BINARY(copysign) \
  MSL_BINARY(divide) \
  MSL_BINARY(fdim) \
  MSL_BINARY(nextafter) \
  MSL_BINARY(step) \
  MSL_TERNARY(fma) \
  MSL_TERNARY(fmax3) \
  MSL_TERNARY(fmin3) \
  MSL_TERNARY(fmedian3) \
  MSL_TERNARY(max3) \
  MSL_TERNARY(min3) \
  MSL_TERNARY(median3) \
  MSL_RELATION(isnan) \
  MSL_RELATION(isinf) \
  MSL_RELATION(isfinite) \
  MSL_RELATION(isnormal) \
  MSL_RELATION(signbit) \
  MSL_RELATION_OF_TWO(isordered) \
  MSL_RELATION_OF_TWO(isunordered) \
  template <class T, int N> T dot(vec<T, N>, vec<T, N>); \
  template <class T, int N> T length(vec<T, N>); \
  template <class T, int N> vec<T, N> normalize(vec<T, N>); \
  template <class T, int N> vec<T, N> cross(vec<T, N>, vec<T, N>); \
  template <class T, int N> T distance(vec<T, N>, vec<T, N>); \
  template <class T, int N> T length_squared(vec<T, N>); \
  template <class T> T frexp(T, auto &); \
  template <class T> T ldexp(T, auto); \
  template <class T> T modf(T, T &); \
  template <class T> T sincos(T, T &);
MSL_MATH
namespace fast {
MSL_MATH
}
namespace precise {
MSL_MATH
}
template <class T> T clamp(T, T, T);
template <class T, int N> vec<T, N> clamp(vec<T, N>, T, T);
template <class T> T mix(T, T, T);
template <class T> T smoothstep(T, T, T);
template <class T> T select(T, T, bool);
template <class T, int N, class B> vec<T, N> select(vec<T, N>, vec<T, N>, B);
template <class T> bool all(T);
template <class T> bool any(T);
template <class T> int ilogb(T);
template <class T, int N> vec<int, N> ilogb(vec<T, N>);
MSL_UNARY(popcount)
MSL_UNARY(clz)
MSL_UNARY(ctz)
MSL_UNARY(reverse_bits)
MSL_BINARY(mulhi)
MSL_BINARY(rotate)
MSL_BINARY(absdiff)
MSL_BINARY(addsat)
MSL_BINARY(subsat)
MSL_BINARY(hadd)
MSL_BINARY(rhadd)
MSL_BINARY(mul24)
MSL_TERNARY(mad24)
MSL_TERNARY(madhi)
MSL_TERNARY(madsat)
template <class T> T extract_bits(T, uint, uint);
template <class T> T insert_bits(T, T, uint, uint);
template <class T> void swap(T &, T &);
template <class T> T make_uniform(T);

#define MSL_PACK(type, n, format, word) \
  word pack_##type##_to_##format(vec<type, n>); \
  vec<type, n> unpack_##format##_to_##type(word);
#define MSL_PACKS(type) \
  MSL_PACK(type, 4, snorm4x8, uint) \
  MSL_PACK(type, 4, unorm4x8, uint) \
  MSL_PACK(type, 2, snorm2x16, uint) \
  MSL_PACK(type, 2, unorm2x16, uint) \
  MSL_PACK(type, 4, unorm10a2, uint) \
  uint pack_##type##_to_srgb_unorm4x8(vec<type, 4>); \
  vec<type, 4> unpack_unorm4x8_srgb_to_##type(uint);
MSL_PACKS(float)
MSL_PACKS(half)
#undef MSL_PACK
#undef MSL_PACKS
#undef MSL_UNARY
#undef MSL_BINARY
#undef MSL_TERNARY
#undef MSL_RELATION
#undef MSL_RELATION_OF_TWO
#undef MSL_MATH
} // namespace metal
