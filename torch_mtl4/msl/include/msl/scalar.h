// Scalar types and the cast between half and bfloat.
#pragma once
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;
#define MSL_INLINE inline __attribute__((always_inline))

// An integer as a float that is right to round further: clang rounds to float and then to bfloat, which is not once.
template <class S> constexpr float msl_sticky_float(S n) {
  bool negative = n < 0;
  ulong magnitude = negative ? 0 - (ulong)n : (ulong)n;
  float scale = 1;
  while (magnitude >> 24) {
    magnitude = magnitude >> 1 | (magnitude & 1);
    scale *= 2;
  }
  float f = (float)(uint)magnitude * scale;
  return negative ? -f : f;
}

// MSL allows explicit half <-> bfloat conversions, clang does not: frontend/casts.py turns casts into msl_cast.
template <class D, class S> constexpr D msl_cast(S &&s) {
  using U = __remove_cvref(S);
  if constexpr (__is_same(__remove_cv(D), bfloat) && __is_integral(U) && sizeof(U) >= 4)
    return static_cast<D>(msl_sticky_float(s));
  else if constexpr ((__is_same(__remove_cv(D), bfloat) && __is_same(U, half)) ||
                (__is_same(__remove_cv(D), half) && __is_same(U, bfloat)))
    return static_cast<D>(static_cast<float>(s));
  else return (D)(static_cast<S &&>(s));
}
template <class D, class... S> requires(sizeof...(S) > 1) constexpr D msl_cast(S &&...s) { // a constructor's arguments
  return D(static_cast<S &&>(s)...);
}
