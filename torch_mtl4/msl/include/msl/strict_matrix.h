// metal_matrix, declared for the address-space pass. A matrix has methods, which clang allows in one address space only;
// that a whole one lies and is indexed in any of them, check.py knows.
#pragma once
#include "matrix_names.h"
namespace metal {
template <class T, int C, int R = C> struct matrix {
  vec<T, R> c_[C];
  matrix() = default;
  template <class... A> requires(sizeof...(A) > 0) explicit constexpr matrix(A...);
  constexpr vec<T, R> &operator[](size_t i) { return c_[i]; }
  constexpr const vec<T, R> &operator[](size_t i) const { return c_[i]; }
  constexpr matrix &operator+=(matrix);
  constexpr matrix &operator-=(matrix);
  constexpr matrix &operator*=(T);
  friend constexpr matrix operator+(matrix, matrix);
  friend constexpr matrix operator-(matrix, matrix);
  friend constexpr matrix operator*(matrix, T);
  friend constexpr matrix operator*(T, matrix);
  friend constexpr vec<T, R> operator*(matrix, vec<T, C>);
  friend constexpr vec<T, C> operator*(vec<T, R>, matrix);
};
template <class T, int C, int R, int K> constexpr matrix<T, K, R> operator*(matrix<T, C, R>, matrix<T, K, C>);
template <class T, int C, int R> constexpr matrix<T, R, C> transpose(matrix<T, C, R>);
template <class T, int C> constexpr T determinant(matrix<T, C, C>);
MSL_MATRICES(half)
MSL_MATRICES(float)
} // namespace metal
MSL_USING_MATRICES(half)
MSL_USING_MATRICES(float)
