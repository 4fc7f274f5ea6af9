// Vectors: `vec<T, N>` with swizzles as properties, so that `v.xyz` is a `vec<T, 3>`; packed vectors.
#pragma once
#include "traits.h"
namespace metal {
template <class T, int N> struct vec;
template <class T, int N> struct packed_vec;
template <class T> struct alignas(sizeof(T) * 2) vec<T, 2> {
  union {
    T d[2];
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
    struct {
      T s0, s1;
    };
  };
  using value_type = T;
  vec() = default;
  constexpr vec(T s) : d{s, s} {}
  constexpr vec(T a, T b) : d{a, b} {}
  template <class U, class = enable_if_t<is_arithmetic_v<U> && !is_same_v<U, T>>> constexpr vec(U s)
      : d{msl_cast<T>(s), msl_cast<T>(s)} {}
  template <class U> explicit constexpr vec(packed_vec<U, 2> o) {
    for (int i = 0; i < 2; i++) d[i] = msl_cast<T>(o.d[i]);
  }
  template <class U> explicit constexpr vec(vec<U, 2> o) : d{msl_cast<T>(o.d[0]), msl_cast<T>(o.d[1])} {}
#define MSL_N 2
#include "swizzle.inc"
#include "vector_operators.inc"
#undef MSL_N
};
template <class T> struct alignas(sizeof(T) * 4) vec<T, 3> {
  union {
    T d[3];
    T with_padding_[4]; // so that every copy moves the same bytes
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
  };
  using value_type = T;
  vec() = default;
  constexpr vec(T s) : d{s, s, s} {}
  constexpr vec(T a, T b, T c) : d{a, b, c} {}
  constexpr vec(T a, T b) : d{a, b, T(0)} {}
  template <class U, class = enable_if_t<is_arithmetic_v<U> && !is_same_v<U, T>>> constexpr vec(U s)
      : d{msl_cast<T>(s), msl_cast<T>(s), msl_cast<T>(s)} {}
  constexpr vec(vec<T, 2> a, T b) : d{a.d[0], a.d[1], b} {}
  constexpr vec(T a, vec<T, 2> b) : d{a, b.d[0], b.d[1]} {}
  template <class U> explicit constexpr vec(packed_vec<U, 3> o) {
    for (int i = 0; i < 3; i++) d[i] = msl_cast<T>(o.d[i]);
  }
  template <class U> explicit constexpr vec(vec<U, 3> o)
      : d{msl_cast<T>(o.d[0]), msl_cast<T>(o.d[1]), msl_cast<T>(o.d[2])} {}
#define MSL_N 3
#include "swizzle.inc"
#include "vector_operators.inc"
#undef MSL_N
};
template <class T> struct alignas(sizeof(T) * 4) vec<T, 4> {
  union {
    T d[4];
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
  };
  using value_type = T;
  vec() = default;
  constexpr vec(T s) : d{s, s, s, s} {}
  constexpr vec(T a, T b, T c, T e) : d{a, b, c, e} {}
  constexpr vec(T a, T b, T c) : d{a, b, c, T(0)} {}
  constexpr vec(T a, T b) : d{a, b, T(0), T(0)} {}
  template <class U, class = enable_if_t<is_arithmetic_v<U> && !is_same_v<U, T>>> constexpr vec(U s)
      : d{msl_cast<T>(s), msl_cast<T>(s), msl_cast<T>(s), msl_cast<T>(s)} {}
  constexpr vec(vec<T, 2> a, T b, T c) : d{a.d[0], a.d[1], b, c} {}
  constexpr vec(T a, vec<T, 2> b, T c) : d{a, b.d[0], b.d[1], c} {}
  constexpr vec(T a, T b, vec<T, 2> c) : d{a, b, c.d[0], c.d[1]} {}
  constexpr vec(vec<T, 2> a, vec<T, 2> b) : d{a.d[0], a.d[1], b.d[0], b.d[1]} {}
  constexpr vec(vec<T, 3> a, T b) : d{a.d[0], a.d[1], a.d[2], b} {}
  constexpr vec(T a, vec<T, 3> b) : d{a, b.d[0], b.d[1], b.d[2]} {}
  template <class U> explicit constexpr vec(packed_vec<U, 4> o) {
    for (int i = 0; i < 4; i++) d[i] = msl_cast<T>(o.d[i]);
  }
  template <class U> explicit constexpr vec(vec<U, 4> o)
      : d{msl_cast<T>(o.d[0]), msl_cast<T>(o.d[1]), msl_cast<T>(o.d[2]), msl_cast<T>(o.d[3])} {}
  constexpr vec<T, 2> g_lo() const { return {d[0], d[1]}; }
  constexpr vec<T, 2> g_hi() const { return {d[2], d[3]}; }
#define MSL_N 4
#include "swizzle.inc"
#include "vector_operators.inc"
#undef MSL_N
};
constexpr int msl_pow2(int n) {
  int p = 1;
  while (p < n) p *= 2;
  return p;
}
template <class T, int N> struct alignas(sizeof(T) * msl_pow2(N)) vec { // extended vectors (8, 16, ...)
  T d[N];
  using value_type = T;
  vec() = default;
  constexpr vec(T s) {
    for (int i = 0; i < N; i++) d[i] = s;
  }
  template <class... U, class = enable_if_t<sizeof...(U) == N - 2>> constexpr vec(T a, T b, U... u)
      : d{a, b, (T)u...} {}
  template <class U> explicit constexpr vec(vec<U, N> o) {
    for (int i = 0; i < N; i++) d[i] = msl_cast<T>(o.d[i]);
  }
#define MSL_N N
#include "vector_operators.inc"
#undef MSL_N
};
template <class T> struct alignas(sizeof(T)) vec<T, 1> {
  union {
    T d[1];
    T x;
  };
  vec() = default;
  constexpr vec(T s) : d{s} {}
  constexpr operator T() const { return d[0]; }
  constexpr T &operator[](long i) { return d[i]; }
  constexpr const T &operator[](long i) const { return d[i]; }
};

template <class T, int N> struct packed_vec { // element alignment, no padding
  T d[N];
  packed_vec() = default;
  constexpr packed_vec(vec<T, N> v) {
    for (int i = 0; i < N; i++) d[i] = v.d[i];
  }
  constexpr packed_vec(T s) {
    for (int i = 0; i < N; i++) d[i] = s;
  }
  template <class... U, class = enable_if_t<sizeof...(U) == N - 2>> constexpr packed_vec(T a, T b, U... u)
      : d{a, b, (T)u...} {}
  constexpr operator vec<T, N>() const {
    vec<T, N> r;
    for (int i = 0; i < N; i++) r.d[i] = d[i];
    return r;
  }
  constexpr T &operator[](long i) { return d[i]; }
  constexpr const T &operator[](long i) const { return d[i]; }
  constexpr T g0() const { return d[0]; }
  constexpr void p0(T v) { d[0] = v; }
  __declspec(property(get = g0, put = p0)) T x;
  constexpr T g1() const { return d[1]; }
  constexpr void p1(T v) { d[1] = v; }
  __declspec(property(get = g1, put = p1)) T y;
  constexpr T g2() const { return d[N > 2 ? 2 : 0]; }
  constexpr void p2(T v) { d[N > 2 ? 2 : 0] = v; }
  __declspec(property(get = g2, put = p2)) T z;
  constexpr T g3() const { return d[N > 3 ? 3 : 0]; }
  constexpr void p3(T v) { d[N > 3 ? 3 : 0] = v; }
  __declspec(property(get = g3, put = p3)) T w;
};
#define MSL_VT(t) \
  using t##2 = vec<t, 2>; \
  using t##3 = vec<t, 3>; \
  using t##4 = vec<t, 4>; \
  using packed_##t##2 = packed_vec<t, 2>; \
  using packed_##t##3 = packed_vec<t, 3>; \
  using packed_##t##4 = packed_vec<t, 4>;
MSL_VT(bool)
MSL_VT(char) MSL_VT(uchar) MSL_VT(short) MSL_VT(ushort) MSL_VT(int) MSL_VT(uint) MSL_VT(long) MSL_VT(ulong) MSL_VT(half)
    MSL_VT(float) MSL_VT(bfloat) template <class T>
    struct is_vec_ : false_type {};
template <class T, int N> struct is_vec_<vec<T, N>> : true_type {};
} // namespace metal
#define MSL_GV(t) \
  using metal::t##2; \
  using metal::t##3; \
  using metal::t##4; \
  using metal::packed_##t##2; \
  using metal::packed_##t##3; \
  using metal::packed_##t##4;
MSL_GV(bool)
MSL_GV(char) MSL_GV(uchar) MSL_GV(short) MSL_GV(ushort) MSL_GV(int) MSL_GV(uint) MSL_GV(long) MSL_GV(ulong) MSL_GV(half)
    MSL_GV(float) MSL_GV(bfloat)
