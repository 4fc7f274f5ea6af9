// metal_cooperative_tensor: each thread of the scope owns some elements of a tile.
#pragma once
#include "cooperative_layout.h"
#include "tensor.h"
namespace metal {
template <class T, class Ext, class L> struct cooperative_tensor {
  using element_type = T;
  using value_type = T;
  using layout = L;
  using index_type = int;
  using extents_type = Ext;
  T d_[L::capacity];
  MSL_UNCHECKED cooperative_tensor() {
    bool z = msl_zero_cooperative();
    for (int i = 0; i < L::capacity; i++) d_[i] = z ? T(0) : poison();
  } // MSL leaves the elements undefined
  static T poison() {
    if constexpr (is_floating_point_v<T>) return (T)__builtin_nanf("");
    else return (T)0x5A;
  }
  static constexpr int get_capacity() { return L::capacity; }
  static constexpr int capacity() { return L::capacity; }
  static bool at(int i, int &c, int &r) {
    return L::coord(msl_layout(), msl_lane_in_scope(L::threads), i, c, r);
  }
  bool is_valid_element(int i) const {
    int c, r;
    return at(i, c, r);
  }
  bool get_mask(int i) const { return is_valid_element(i); }
  array<int, L::rank> get_multidimensional_index(int i) const {
    int c = 0, r = 0;
    at(i, c, r);
    array<int, L::rank> a{};
    a[0] = c;
    if constexpr (L::rank > 1) a[1] = r;
    return a;
  }
  T &operator[](int i) {
    if (i < 0 || i >= L::capacity) {
      msl_report("coop-capacity", "cooperative tensor element %d outside capacity %d", i, L::capacity);
      return d_[0];
    }
    return d_[i];
  }
  const T &operator[](int i) const {
    if (i < 0 || i >= L::capacity) {
      msl_report("coop-capacity", "cooperative tensor element %d outside capacity %d", i, L::capacity);
      return d_[0];
    }
    return d_[i];
  }
  struct iterator {
    cooperative_tensor *t;
    int i;
    using element_type = T;
    T &operator*() const { return (*t)[i]; }
    iterator &operator++() {
      ++i;
      return *this;
    }
    iterator operator++(int) {
      iterator r = *this;
      ++i;
      return r;
    }
    bool operator!=(const iterator &o) const { return i != o.i; }
    bool operator==(const iterator &o) const { return i == o.i; }
    array<int, L::rank> get_multidimensional_index() const { return t->get_multidimensional_index(i); }
    bool is_valid() const { return t->is_valid_element(i); }
    int index() const { return i; }
  };
  iterator begin() { return {this, 0}; }
  iterator end() { return {this, L::capacity}; }
  template <class It> iterator map_iterator(It it) {
    auto a = it.get_multidimensional_index();
    int want;
    if constexpr (requires { typename L::src; })
      want = L::rows == 1 && L::capacity == L::src::rows && L::is_row ? a[1] : a[0];
    else want = it.i;
    return {this, want};
  }
  template <class TT> void load(const TT &t) {
    for (int i = 0; i < L::capacity; i++) {
      int c, r;
      if (!at(i, c, r)) continue;
      if (c < t.get_extent(0) && (TT::R < 2 || r < t.get_extent(TT::R > 1)))
        d_[i] = (T)t.p_[c * t.s_[0] + (TT::R > 1 ? r * t.s_[TT::R > 1] : 0)];
      else d_[i] = T(0);
    }
  }
  template <class TT> void store(const TT &t) const {
    for (int i = 0; i < L::capacity; i++) {
      int c, r;
      if (!at(i, c, r)) continue;
      if (c < t.get_extent(0) && (TT::R < 2 || r < t.get_extent(TT::R > 1)))
        t.p_[c * t.s_[0] + (TT::R > 1 ? r * t.s_[TT::R > 1] : 0)] = (typename TT::value_type)d_[i];
    }
  }
};
template <class L, bool ROW> struct coop_red : coop_red_layout<L, ROW> {
  static constexpr bool is_row = ROW;
};
template <class T> struct is_coop_ : false_type {};
template <class... A> struct is_coop_<cooperative_tensor<A...>> : true_type {};
} // namespace metal
