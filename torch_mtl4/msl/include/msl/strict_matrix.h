// metal_matrix, declared for the address-space pass. A matrix has methods, which clang allows in one address space only;
// that a whole one lies and is indexed in any of them, check.py knows.
#pragma once
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
#define MSL_MATRICES(t) \
  using t##2x2 = matrix<t, 2, 2>; \
  using t##2x3 = matrix<t, 2, 3>; \
  using t##2x4 = matrix<t, 2, 4>; \
  using t##3x2 = matrix<t, 3, 2>; \
  using t##3x3 = matrix<t, 3, 3>; \
  using t##3x4 = matrix<t, 3, 4>; \
  using t##4x2 = matrix<t, 4, 2>; \
  using t##4x3 = matrix<t, 4, 3>; \
  using t##4x4 = matrix<t, 4, 4>;
MSL_MATRICES(half)
MSL_MATRICES(float)
} // namespace metal
#undef MSL_MATRICES
#define MSL_MATRICES(t) \
  using metal::t##2x2; \
  using metal::t##2x3; \
  using metal::t##2x4; \
  using metal::t##3x2; \
  using metal::t##3x3; \
  using metal::t##3x4; \
  using metal::t##4x2; \
  using metal::t##4x3; \
  using metal::t##4x4;
MSL_MATRICES(half)
MSL_MATRICES(float)
#undef MSL_MATRICES
