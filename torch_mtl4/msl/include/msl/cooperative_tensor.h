// metal_cooperative_tensor: each thread of the scope owns some elements of a tile.
#pragma once
#include "cooperative_layout.h"
#include "tensor.h"
namespace msl {
enum class Role { destination, left, right, row_reduction, column_reduction };
}

namespace metal {
template <class T, class Ext, class Layout, msl::Role ROLE> struct cooperative_tensor {
  using element_type = T;
  using value_type = T;
  using layout = Layout;
  using index_type = int;
  using extents_type = Ext;
  static constexpr msl::Role role = ROLE;
  static constexpr int R = Layout::rank;
  T d_[Layout::capacity];

  // MSL leaves the elements undefined.
  MSL_UNCHECKED cooperative_tensor() {
    bool zero = msl_zero_cooperative();
    for (int i = 0; i < Layout::capacity; i++) d_[i] = zero ? T(0) : poison_();
  }
  explicit cooperative_tensor(const T *elements) {
    for (int i = 0; i < Layout::capacity; i++) d_[i] = elements[i];
  }
#if !MSL_HAS(400, 2700)
  cooperative_tensor(const cooperative_tensor &) = delete ("copies of cooperative tensors need macOS 27.0");
  cooperative_tensor &operator=(const cooperative_tensor &) = default;
#endif

  static constexpr int get_capacity() { return Layout::capacity; }
  static constexpr Ext extents() { return {}; }
  static constexpr int get_extent(size_t d) { return Ext().extent(d); }
  static constexpr size_t get_rank() { return R; }

  struct iterator {
    using element_type = T;
    cooperative_tensor *t;
    int i;
    T &operator*() const { return (*t)[i]; }
    iterator &operator++() {
      ++i;
      return *this;
    }
    iterator operator++(int) { return {t, i++}; }
    bool operator==(const iterator &o) const { return i == o.i; }
    bool operator!=(const iterator &o) const { return i != o.i; }
    array<int, R> get_multidimensional_index() const { return t->get_multidimensional_index(i); }
  };
  iterator begin() { return {this, 0}; }
  iterator end() { return {this, Layout::capacity}; }

  bool is_valid_element(int i) const {
    int c, r;
    return at_(i, c, r);
  }
  bool is_valid_element(const iterator &it) const { return is_valid_element(it.i); }
  bool is_valid_element(const T *element) const { return is_valid_element((int)(element - d_)); }

  array<int, R> get_multidimensional_index(int i) const {
    int c = 0, r = 0;
    at_(i, c, r);
    array<int, R> index{};
    index[0] = c;
    if constexpr (R > 1) index[1] = r;
    return index;
  }
  array<int, R> get_multidimensional_index(const iterator &it) const { return get_multidimensional_index(it.i); }

  T &operator[](int i) { return d_[inside_(i)]; }
  const T &operator[](int i) const { return d_[inside_(i)]; }
  T get(int i) const { return (*this)[i]; }
  void set(int i, T value) { (*this)[i] = value; }

  // The element of this reduction that belongs to the row (or column) of an element of the reduced tensor.
  template <class It> iterator map_iterator(It it) {
    using Source = remove_reference_t<decltype(*it.t)>;
    static_assert(ROLE == msl::Role::row_reduction || ROLE == msl::Role::column_reduction,
                  "map_iterator: is a member of a reduction tensor");
    static_assert(is_same_v<typename Source::element_type, T>, "map_iterator: the element types must be equal");
    static_assert(Layout::threads == 32 && Source::layout::threads == 32, "map_iterator: the scope is one simdgroup");
    static_assert(Source::R == 2 && Layout::cols == (Layout::is_row ? Source::layout::rows : Source::layout::cols),
                  "map_iterator: the sizes along the reduction must be equal");
    auto index = it.get_multidimensional_index();
    int slot = Layout::slot_of(msl_layout(), msl::lane_in_scope(Layout::threads), index[Layout::is_row]);
    if (slot < 0 && it.t->is_valid_element(it.i)) {
      msl_report("coop-map",
                 "map_iterator: this thread does not own the reduction of element (%d, %d); ask "
                 "is_iterator_compatible first",
                 index[0], index[1]);
      slot = 0;
    }
    return {this, slot < 0 ? 0 : slot};
  }

  template <class Tensor> void load(const Tensor &t) {
    check_memory_<Tensor>();
    const auto &v = t.view();
    for (int i = 0; i < Layout::capacity; i++) {
      int c, r;
      if (!at_(i, c, r)) continue;
      if (inside_(v, c, r)) d_[i] = v.data[v.number(c, r)];
      else d_[i] = T(0);
    }
  }
  template <class Tensor> void store(const Tensor &t) const {
    check_memory_<Tensor>();
    const auto &v = t.view();
    for (int i = 0; i < Layout::capacity; i++) {
      int c, r;
      if (at_(i, c, r) && inside_(v, c, r)) v.data[v.number(c, r)] = d_[i];
    }
  }

private:
  static T poison_() {
    if constexpr (is_floating_point_v<T>) return (T)__builtin_nanf("");
    else return (T)0x5A;
  }
  static bool at_(int i, int &c, int &r) {
    return Layout::coord(msl_layout(), msl::lane_in_scope(Layout::threads), i, c, r);
  }
  static int inside_(int i) {
    if (i >= 0 && i < Layout::capacity) return i;
    msl_report("coop-capacity", "cooperative tensor element %d outside capacity %d", i, Layout::capacity);
    return 0;
  }
  template <class V> static bool inside_(const V &v, int c, int r) {
    return c < v.extents.extent(0) && (V::rank < 2 || r < v.extents.extent(V::rank > 1));
  }
  template <class Tensor> static constexpr void check_memory_() {
    static_assert(is_tensor_v<Tensor>, "cooperative_tensor: load and store take a tensor");
    static_assert(Tensor::R == 1 || Tensor::R == 2, "cooperative_tensor: load and store take tensors of rank 1 or 2");
    static_assert(is_same_v<typename Tensor::value_type, T>,
                  "cooperative_tensor: load and store need a tensor of the same element type");
  }
};

template <class T> constexpr bool is_cooperative_tensor_v = false;
template <class T, class E, class L, msl::Role R>
constexpr bool is_cooperative_tensor_v<cooperative_tensor<T, E, L, R>> = true;
} // namespace metal
