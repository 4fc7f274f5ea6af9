// extents, dextents: sizes of tensors, innermost dimension first.
#pragma once
#include "traits.h"
namespace metal {
constexpr size_t dynamic_extent = (size_t)-1;

template <class I, size_t... E> struct extents {
  using index_type = I;
  using size_type = make_unsigned_t<I>;
  using rank_type = size_t;
  static_assert(sizeof...(E) <= 16, "extents: a tensor has at most 16 dimensions");
  static constexpr size_t static_[sizeof...(E) ? sizeof...(E) : 1] = {E...};
  I e_[sizeof...(E) ? sizeof...(E) : 1];

  static constexpr size_t rank() { return sizeof...(E); }
  static constexpr size_t rank_dynamic() { return ((E == dynamic_extent ? 1 : 0) + ... + 0); }
  static constexpr size_t static_extent(size_t r) { return static_[r]; }

  constexpr extents() : e_{(E == dynamic_extent ? I(0) : (I)E)...} {}
  template <class... A> requires(sizeof...(A) == sizeof...(E) && (is_convertible_v<A, I> && ...))
  constexpr extents(A... a) : e_{(I)a...} {}
  template <class... A> requires(sizeof...(A) == rank_dynamic() && sizeof...(A) != sizeof...(E) && sizeof...(A) != 0)
  constexpr extents(A... a) : e_{} {
    I given[] = {(I)a...};
    int k = 0;
    for (size_t i = 0; i < sizeof...(E); i++) e_[i] = static_[i] == dynamic_extent ? given[k++] : (I)static_[i];
  }
  constexpr I extent(size_t r) const { return e_[r]; }
  constexpr I operator[](size_t r) const { return e_[r]; }
};

template <class I, class S> struct dextents_;
template <class I, size_t... S> struct dextents_<I, index_sequence<S...>> {
  using type = extents<I, (S * 0 + dynamic_extent)...>;
};
template <class I, size_t R> using dextents = typename dextents_<I, make_index_sequence<R>>::type;
} // namespace metal
