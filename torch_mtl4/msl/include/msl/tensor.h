// metal_tensor: a pointer with extents and strides; what is left of the parent is kept for bounds checks.
#pragma once
#include "extents.h"
#include "array.h"
namespace metal {
template <class T, class Ext, class Desc = tensor_handle, class... Tags> struct tensor {
  using element_type = T;
  using value_type = remove_cv_t<T>;
  using extents_type = Ext;
  using index_type = typename Ext::index_type;
  using descriptor_type = Desc;
  using data_handle_type = T *;
  static constexpr int R = (int)Ext::rank();
  T *p_;
  Ext e_;
  long s_[R ? R : 1];
  long lim_[R ? R : 1]; // lim_: what is left of the parent, for bounds checks
  tensor() = default;
  constexpr tensor(T *p, const Ext &e) : p_(p), e_(e) {
    long s = 1;
    for (int i = 0; i < R; i++) {
      s_[i] = s;
      s *= e.extent(i);
      lim_[i] = e.extent(i);
    }
  }
  template <class U, size_t N> constexpr tensor(T *p, const Ext &e, const array<U, N> &st) : p_(p), e_(e) {
    for (int i = 0; i < R; i++) {
      s_[i] = st[i];
      lim_[i] = e.extent(i);
    }
  }
  template <class O, class... Tg> constexpr tensor(const tensor<T, Ext, O, Tg...> &o) : p_(o.p_), e_(o.e_) {
    for (int i = 0; i < R; i++) {
      s_[i] = o.s_[i];
      lim_[i] = o.lim_[i];
    }
  }
  static constexpr size_t get_rank() { return R; }
  static constexpr size_t rank() { return R; }
  constexpr index_type get_extent(size_t r) const { return e_.extent(r); }
  constexpr index_type extent(size_t r) const { return e_.extent(r); }
  constexpr const Ext &extents() const { return e_; }
  constexpr index_type get_stride(size_t r) const { return (index_type)s_[r]; }
  constexpr index_type stride(size_t r) const { return (index_type)s_[r]; }
  constexpr T *data_handle() const { return p_; }
  constexpr T *get_data_handle() const { return p_; }
  template <class... I>
  constexpr tensor<T, dextents<index_type, sizeof...(I)>, tensor_offset, Tags...> slice(I... idx) const {
    long o[] = {(long)idx...};
    tensor<T, dextents<index_type, sizeof...(I)>, tensor_offset, Tags...> t;
    t.p_ = p_;
    for (int i = 0; i < R; i++) {
      t.p_ += o[i] * s_[i];
      t.s_[i] = s_[i];
      t.lim_[i] = lim_[i] - o[i];
      t.e_.e_[i] = e_.extent(i) - o[i];
    }
    return t;
  }
  template <size_t... S, class... I, class = enable_if_t<sizeof...(S) == sizeof...(I) && sizeof...(S) != 0>>
  constexpr tensor<T, metal::extents<index_type, S...>, tensor_offset, Tags...> slice(I... idx) const {
    long o[] = {(long)idx...};
    size_t st[] = {S...};
    tensor<T, metal::extents<index_type, S...>, tensor_offset, Tags...> t;
    t.p_ = p_;
    for (int i = 0; i < R; i++) {
      t.p_ += o[i] * s_[i];
      t.s_[i] = s_[i];
      t.lim_[i] = lim_[i] - o[i];
      t.e_.e_[i] = st[i] == dynamic_extent ? (index_type)(e_.extent(i) - o[i]) : (index_type)st[i];
    }
    return t;
  }
  template <size_t... S, class... I> constexpr auto static_slice(I... idx) const { return slice<S...>(idx...); }
  template <class... I> constexpr T &operator[](I... idx) const requires(sizeof...(I) == R && R > 1) {
    long o[] = {(long)idx...};
    T *q = p_;
    for (int i = 0; i < R; i++) {
      if (o[i] < 0 || o[i] >= e_.extent(i))
        msl_report("out-of-bounds", "tensor index %ld of dimension %d outside extent %ld", o[i], i, (long)e_.extent(i));
      q += o[i] * s_[i];
    }
    return *q;
  }
  template <class U, size_t N> constexpr T &operator[](const array<U, N> &idx) const {
    T *q = p_;
    for (int i = 0; i < R; i++) q += (long)idx[i] * s_[i];
    return *q;
  }
};
template <class T, class Ext> tensor(T *, const Ext &) -> tensor<T, Ext, tensor_inline>;
template <class T, class Ext, class U, size_t N> tensor(T *, const Ext &, const array<U, N> &)
    -> tensor<T, Ext, tensor_inline>;
template <class T> struct is_tensor_ : false_type {};
template <class... A> struct is_tensor_<tensor<A...>> : true_type {};
} // namespace metal
