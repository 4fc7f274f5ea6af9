// metal_matrix: column-major matrices.
#pragma once
#include "matrix_names.h"
#include "vector.h"
namespace metal {
template <class T, int C, int R = C> struct matrix {
  vec<T, R> c[C];
  matrix() = default;
  explicit constexpr matrix(T s) {
    for (int i = 0; i < C; i++)
      for (int j = 0; j < R; j++) c[i].d[j] = i == j ? s : T(0);
  }
  template <class... V, class = enable_if_t<sizeof...(V) == C - 1 && (is_same_v<V, vec<T, R>> && ...)>>
  constexpr matrix(vec<T, R> a, V... v) : c{a, v...} {}
  template <class... S, class = enable_if_t<sizeof...(S) == C * R - 2 && (is_arithmetic_v<S> && ...)>, class = void>
  constexpr matrix(T a, T b, S... s) {
    T t[] = {a, b, (T)s...};
    for (int i = 0; i < C; i++)
      for (int j = 0; j < R; j++) c[i].d[j] = t[i * R + j];
  }
  template <class U, class = enable_if_t<!is_same_v<U, T>>> explicit constexpr matrix(matrix<U, C, R> o) {
    for (int i = 0; i < C; i++) c[i] = vec<T, R>(o.c[i]);
  }
  constexpr vec<T, R> &operator[](long i) { return c[i]; }
  constexpr const vec<T, R> &operator[](long i) const { return c[i]; }
  friend constexpr matrix operator+(matrix a, matrix b) {
    for (int i = 0; i < C; i++) a.c[i] += b.c[i];
    return a;
  }
  friend constexpr matrix operator-(matrix a, matrix b) {
    for (int i = 0; i < C; i++) a.c[i] -= b.c[i];
    return a;
  }
  friend constexpr matrix operator*(matrix a, T s) {
    for (int i = 0; i < C; i++) a.c[i] *= s;
    return a;
  }
  friend constexpr matrix operator*(T s, matrix a) { return a * s; }
  friend constexpr vec<T, R> operator*(matrix a, vec<T, C> v) {
    vec<T, R> r = a.c[0] * v.d[0];
    for (int i = 1; i < C; i++) r += a.c[i] * v.d[i];
    return r;
  }
  constexpr matrix &operator*=(T s) {
    for (int i = 0; i < C; i++) c[i] *= s;
    return *this;
  }
  constexpr matrix &operator+=(matrix b) {
    for (int i = 0; i < C; i++) c[i] += b.c[i];
    return *this;
  }
};
template <class T, int C, int R, int K> constexpr matrix<T, K, R> operator*(matrix<T, C, R> a, matrix<T, K, C> b) {
  matrix<T, K, R> r;
  for (int i = 0; i < K; i++) r.c[i] = a * b.c[i];
  return r;
}
template <class T, int C, int R> constexpr matrix<T, R, C> transpose(matrix<T, C, R> a) {
  matrix<T, R, C> r;
  for (int i = 0; i < C; i++)
    for (int j = 0; j < R; j++) r.c[j].d[i] = a.c[i].d[j];
  return r;
}

MSL_MATRICES(half)
MSL_MATRICES(float)
} // namespace metal
MSL_USING_MATRICES(half)
MSL_USING_MATRICES(float)
