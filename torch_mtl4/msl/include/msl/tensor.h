// metal_tensor: tensor_inline is made in the kernel from a pointer; tensor_handle is bound by the host, and its slices
// carry the tag tensor_offset.
#pragma once
#include "tensor_view.h"
namespace metal {
struct tensor_handle {};
struct tensor_inline {};
struct tensor_offset {};

// MslTensorBinding in the host's memory: 8 bytes as a resource ID, so that handles may lie in buffers.
template <class View> struct handle_storage_ {
  const MslTensorBinding *binding_ = nullptr;
  MSL_UNCHECKED View view() const { return msl::view_of_binding<View>(binding_); }
};
template <class View> struct view_storage_ {
  View view_;
  constexpr const View &view() const { return view_; }
};
template <class View, class Desc, class... Tags> using tensor_storage_ =
    conditional_t<is_same_v<Desc, tensor_handle> && !(is_same_v<Tags, tensor_offset> || ...), handle_storage_<View>,
                  view_storage_<View>>;

template <class T, class Ext, class Desc = tensor_handle, class... Tags> struct tensor
    : tensor_storage_<msl::TensorView<T, Ext, (msl::is_blockwise<Tags> || ...)>, Desc, Tags...> {
  static_assert(is_same_v<Desc, tensor_handle> || is_same_v<Desc, tensor_inline>,
                "tensor: the third argument is tensor_handle or tensor_inline; tensor_offset is a tag behind it");
  static_assert(is_same_v<Desc, tensor_handle> || !(is_same_v<Tags, tensor_offset> || ...),
                "tensor: tensor_offset belongs to slices of a tensor_handle");
  static_assert(!is_same_v<remove_cv_t<T>, msl::fp8_ue8m0>,
                "tensor: metal_fp8_ue8m0_format is for scales, not for data");
  static constexpr bool scaled_ = (msl::is_blockwise<Tags> || ...);
  static_assert(!scaled_ ||
                    sizeof(typename msl::ElementPointer<T>::type) && msl::TensorView<T, Ext, scaled_>::bits <= 8,
                "tensor: scales need elements of at most 8 bits");
  using view_type = msl::TensorView<T, Ext, scaled_>;
  using element_type = T;
  using value_type = remove_cv_t<T>;
  using extents_type = Ext;
  using index_type = typename Ext::index_type;
  using descriptor_type = Desc;
  using data_handle_type = typename view_type::pointer;
  static constexpr int R = (int)Ext::rank();

  tensor() = default;
  constexpr tensor(data_handle_type p, const Ext &e) requires(is_same_v<Desc, tensor_inline> && !scaled_) {
    this->view_ = view_type(p, e);
  }
  template <class U, size_t N> constexpr tensor(data_handle_type p, const Ext &e, const array<U, N> &strides)
      requires(is_same_v<Desc, tensor_inline> && !scaled_ && N == R) {
    this->view_ = view_type(p, e, strides);
  }
  template <class U, size_t N, class Plane>
  constexpr tensor(data_handle_type p, const Ext &e, const array<U, N> &strides, const Plane &plane)
      requires(is_same_v<Desc, tensor_inline> && (is_same_v<Plane, Tags> || ...) && N == R) {
    this->view_ = view_type(p, e, strides);
    this->view_.set_scales(plane.data);
  }

  static constexpr size_t get_rank() { return R; }
  static constexpr size_t rank() { return R; }
  constexpr Ext extents() const { return this->view().extents; }
  constexpr index_type get_extent(size_t d) const { return this->view().extents.extent(d); }
  constexpr index_type get_stride(size_t d) const { return (index_type)this->view().strides[d]; }
  MSL_SINCE_27 constexpr size_t get_stride_bytes(size_t d) const {
    return (size_t)this->view().strides[d] * view_type::bits / 8;
  }
  constexpr data_handle_type get_data_handle() const { return this->view().data; }
  constexpr data_handle_type data_handle() const { return this->view().data; }

  template <class... I> requires(sizeof...(I) == R) constexpr auto slice(I... origin) const {
    return sliced_<dextents<index_type, R>>({(long)origin...});
  }
  template <size_t... S, class... I> requires(sizeof...(S) == R && sizeof...(I) == R)
  constexpr auto slice(I... origin) const {
    return sliced_<metal::extents<index_type, S...>>({(long)origin...});
  }
  template <class... I> requires(sizeof...(I) == R && R > 0) constexpr T &operator[](I... index) const {
    static_assert(!view_type::format, "tensor: elements of a format have no address; unpack them from the bytes");
    const view_type &v = this->view();
    long x[] = {(long)index...}, number = 0;
    for (int d = 0; d < R; d++) {
      if (x[d] < 0 || x[d] >= v.extents.extent(d))
        msl_report("out-of-bounds", "tensor index %ld of dimension %d outside extent %ld", x[d], d,
                   (long)v.extents.extent(d));
      number += x[d] * v.strides[d];
    }
    return v.data[number];
  }
  template <class U> constexpr T &operator[](const array<U, R> &index) const {
    return at_(index, make_index_sequence<R>{});
  }

private:
  template <class U, size_t... D> constexpr T &at_(const array<U, R> &index, index_sequence<D...>) const {
    return (*this)[index[D]...];
  }
  struct Origin_ {
    long d[R ? R : 1];
  };
  template <class E> static constexpr auto slice_type_() {
    if constexpr (is_same_v<Desc, tensor_handle> && !(is_same_v<Tags, tensor_offset> || ...))
      return type_identity<tensor<T, E, Desc, tensor_offset, Tags...>>{};
    else return type_identity<tensor<T, E, Desc, Tags...>>{};
  }
  template <class E> constexpr auto sliced_(Origin_ origin) const {
    const view_type &v = this->view();
    E size;
    for (int d = 0; d < R; d++)
      if (E::static_extent(d) == dynamic_extent) size.e_[d] = v.extents.extent(d) - (index_type)origin.d[d];
    typename decltype(slice_type_<E>())::type t;
    t.view_ = v.slice(origin.d, size);
    return t;
  }
};
template <class T, class Ext> tensor(T *, const Ext &) -> tensor<T, Ext, tensor_inline>;
template <class T, class Ext, class U, size_t N> tensor(T *, const Ext &, const array<U, N> &)
    -> tensor<T, Ext, tensor_inline>;

template <class T> constexpr bool is_tensor_v = false;
template <class... A> constexpr bool is_tensor_v<tensor<A...>> = true;
template <class T> constexpr bool is_tensor_handle_v = false;
template <class T, class E, class... Tags> constexpr bool is_tensor_handle_v<tensor<T, E, tensor_handle, Tags...>> =
    true;
template <class T> constexpr bool is_tensor_inline_v = false;
template <class T, class E, class... Tags> constexpr bool is_tensor_inline_v<tensor<T, E, tensor_inline, Tags...>> =
    true;
template <class T> constexpr bool has_tensor_offset_v = false;
template <class T, class E, class D, class... Tags> constexpr bool has_tensor_offset_v<tensor<T, E, D, Tags...>> =
    (is_same_v<Tags, tensor_offset> || ...);
} // namespace metal
