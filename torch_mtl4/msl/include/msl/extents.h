// extents, dextents: sizes of tensors, innermost dimension first.
#pragma once
#include "traits.h"
namespace metal {
constexpr size_t dynamic_extent = (size_t)-1;
template <class T> constexpr T dynamic_length_v = (T)dynamic_extent;
template <class I, size_t... E> struct extents {
  using index_type = I;
  using size_type = make_unsigned_t<I>;
  using rank_type = size_t;
  I e_[sizeof...(E) ? sizeof...(E) : 1];
  static constexpr size_t static_[sizeof...(E) ? sizeof...(E) : 1] = {E...};
  static constexpr size_t rank() { return sizeof...(E); }
  static constexpr size_t rank_dynamic() { return ((E == dynamic_extent ? 1 : 0) + ... + 0); }
  static constexpr size_t static_extent(size_t r) { return static_[r]; }
  constexpr extents() : e_{(E == dynamic_extent ? I(0) : (I)E)...} {}
  template <class... A, class = enable_if_t<sizeof...(A) == sizeof...(E) && (is_convertible_v<A, I> && ...)>>
  constexpr extents(A... a) : e_{(I)a...} {}
  template <class... A,
            class = enable_if_t<sizeof...(A) == rank_dynamic() && sizeof...(A) != sizeof...(E) && sizeof...(A) != 0>,
            class = void>
  constexpr extents(A... a) : e_{} {
    I d[] = {(I)a...};
    int k = 0;
    for (size_t i = 0; i < sizeof...(E); i++) e_[i] = static_[i] == dynamic_extent ? d[k++] : (I)static_[i];
  }
  constexpr I extent(size_t r) const { return e_[r]; }
  constexpr I operator[](size_t r) const { return e_[r]; }
};
template <class I, size_t R, class S = make_index_sequence<R>> struct dext_;
template <class I, size_t R, size_t... S> struct dext_<I, R, index_sequence<S...>> {
  using type = extents<I, (S * 0 + dynamic_extent)...>;
};
template <class I, size_t R> using dextents = typename dext_<I, R>::type;
struct tensor_handle {};
struct tensor_offset {};
struct tensor_inline {};
} // namespace metal
