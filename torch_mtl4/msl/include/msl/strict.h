// Declarations only: the same MSL text is type-checked with REAL address spaces (clang address_space attributes, plain
// C++ mode). Vectors are clang's built-in ext_vector types here, so loads and stores through any address space work as
// in MSL. Functions, memory and tensors follow in strict_*.h.
#pragma once
#pragma clang system_header
#include "macros.h"
#include "tier.h"
#define MSL_DEVICE __attribute__((address_space(1)))
#define MSL_CONSTANT __attribute__((address_space(2)))
#define MSL_THREADGROUP __attribute__((address_space(3)))
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;
template <class D, class S> constexpr D msl_cast(S s) { // by value: it may come from any address space
  if constexpr ((__is_same(D, bfloat) && __is_same(S, half)) || (__is_same(D, half) && __is_same(S, bfloat)))
    return static_cast<D>(static_cast<float>(s));
  else return static_cast<D>(s);
}
template <class D, class... S> requires(sizeof...(S) > 1) constexpr D msl_cast(S... s) { return D(s...); }
namespace metal {
template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));
template <class T, T V> struct integral_constant {
  static constexpr T value = V;
  constexpr operator T() const { return V; }
};
template <bool B> using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;
template <class A, class B> struct is_same : bool_constant<__is_same(A, B)> {};
template <class A, class B> constexpr bool is_same_v = __is_same(A, B);
template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> {
  using type = T;
};
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F> struct conditional {
  using type = T;
};
template <class T, class F> struct conditional<false, T, F> {
  using type = F;
};
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <class T> struct remove_addrspace {
  using type = T;
};
template <class T> struct remove_addrspace<MSL_DEVICE T> {
  using type = T;
};
template <class T> struct remove_addrspace<MSL_THREADGROUP T> {
  using type = T;
};
template <class T> struct remove_addrspace<MSL_CONSTANT T> {
  using type = T;
};
template <class T> using remove_addrspace_t = typename remove_addrspace<T>::type;
template <class T> struct remove_cv {
  using type = __remove_cv(T);
};
template <class T> using remove_cv_t = __remove_cv(T);
template <class T> using remove_reference_t = __remove_reference_t(T);
template <class T> struct numeric_limits {
  static constexpr T max() { return T(); }
  static constexpr T min() { return T(); }
  static constexpr T lowest() { return T(); }
  static constexpr T infinity() { return T(); }
};
#define MSL_VT(t) \
  using t##2 = vec<t, 2>; \
  using t##3 = vec<t, 3>; \
  using t##4 = vec<t, 4>; \
  using packed_##t##2 = vec<t, 2>; \
  using packed_##t##3 = vec<t, 3>; \
  using packed_##t##4 = vec<t, 4>;
MSL_VT(bool)
MSL_VT(char)
MSL_VT(uchar)
MSL_VT(short)
MSL_VT(ushort)
MSL_VT(int)
MSL_VT(uint)
MSL_VT(long)
MSL_VT(ulong)
MSL_VT(half)
MSL_VT(float)
MSL_VT(bfloat)
#undef MSL_VT
template <class D, class... A> D msl_make(A...); // vector constructors
template <class D, class S> D as_type(S);
template <class T, size_t N> struct array {
  T d_[N];
  constexpr T &operator[](size_t i) { return d_[i]; }
  constexpr const T &operator[](size_t i) const { return d_[i]; }
};
template <class T> struct type_identity {
  using type = T;
};
template <class T> using type_identity_t = typename type_identity<T>::type;
} // namespace metal
#include "strict_functions.h"
#include "strict_matrix.h"
#include "strict_memory.h"
#include "strict_tensor.h"
#include "strict_texture.h"
#define MSL_GLOBAL(t) \
  using metal::t##2; \
  using metal::t##3; \
  using metal::t##4; \
  using metal::packed_##t##2; \
  using metal::packed_##t##3; \
  using metal::packed_##t##4;
MSL_GLOBAL(bool)
MSL_GLOBAL(char)
MSL_GLOBAL(uchar)
MSL_GLOBAL(short)
MSL_GLOBAL(ushort)
MSL_GLOBAL(int)
MSL_GLOBAL(uint)
MSL_GLOBAL(long)
MSL_GLOBAL(ulong)
MSL_GLOBAL(half)
MSL_GLOBAL(float)
MSL_GLOBAL(bfloat)
#undef MSL_GLOBAL
using metal::as_type;
using metal::atomic_float;
using metal::atomic_int;
using metal::atomic_uint;
using metal::memory_order_relaxed;
using metal::msl_make;
namespace msl {
template <class T> T &threadgroup_variable(const void *, const char *);
}
