// metal_array, as_type.
#pragma once
#include "vector.h"
namespace metal {
template <class T, size_t N> struct array {
  T d_[N ? N : 1];
  constexpr T &operator[](size_t i) { return d_[i]; }
  constexpr const T &operator[](size_t i) const { return d_[i]; }
  static constexpr size_t size() { return N; }
  constexpr T *data() { return d_; }
  constexpr const T *data() const { return d_; }
  constexpr T *begin() { return d_; }
  constexpr T *end() { return d_ + N; }
  constexpr const T *begin() const { return d_; }
  constexpr const T *end() const { return d_ + N; }
};
template <class T, class... U> array(T, U...) -> array<T, 1 + sizeof...(U)>;

template <class D, class S> constexpr D as_type(S s) {
  static_assert(sizeof(D) == sizeof(S), "as_type needs equal sizes");
  return __builtin_bit_cast(D, s);
}
} // namespace metal
using metal::as_type;
