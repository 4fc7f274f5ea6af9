// What a tensor is when it is used: where its elements are, how many, and what is left of the tensor it was sliced
// from.
#pragma once
#include "array.h"
#include "extents.h"
#include "tensor_plane.h"
namespace msl {
// Elements of a format are addressed by their number in a byte array, others by a pointer.
template <class T> struct ElementPointer {
  using type = T *;
};
template <Format F> struct ElementPointer<F> {
  using type = uchar *;
};

template <class T, class Extents, bool SCALED> struct TensorView {
  using value_type = __remove_cv(T);
  using pointer = typename ElementPointer<T>::type;
  static constexpr int rank = (int)Extents::rank(), slots = rank ? rank : 1;
  static constexpr bool format = Format<value_type>, scaled = SCALED;
  static constexpr int bits = [] {
    if constexpr (Format<value_type>) return value_type::bits;
    else return (int)sizeof(value_type) * 8;
  }();

  pointer data = nullptr;
  long first = 0; // number of the first element, for formats; a pointer to any other element is moved instead
  Extents extents;
  long strides[slots] = {}, left[slots] = {};
  uchar *scales = nullptr; // of the whole tensor: one scale for 32 elements, rows packed
  long scale_row = 0, scale_column = 0, scales_per_row = 0;

  constexpr TensorView() = default;
  constexpr TensorView(pointer p, const Extents &e) : data(p), extents(e) {
    long stride = 1;
    for (int d = 0; d < rank; d++) {
      strides[d] = stride;
      stride *= left[d] = e.extent(d);
    }
  }
  template <class S> constexpr TensorView(pointer p, const Extents &e, const S &s) : data(p), extents(e) {
    for (int d = 0; d < rank; d++) {
      strides[d] = s[d];
      left[d] = e.extent(d);
    }
  }
  constexpr void set_scales(uchar *p) {
    scales = p;
    scales_per_row = (extents.extent(0) + 31) / 32;
    if (extents.extent(0) % 32)
      msl_report("tensor-alignment", "the first dimension of a tensor with scales must be a multiple of 32, not %d",
                 (int)extents.extent(0));
  }

  constexpr long number(long x, long y) const {
    return first + x * strides[0] + (rank > 1 ? y * strides[rank > 1] : 0);
  }
  MSL_UNCHECKED value_type *at(long x, long y) const { return (value_type *)&data[number(x, y)]; }

  // The element at column x and row y, decoded and scaled, as the type of an accumulator.
  template <class Acc> MSL_UNCHECKED Acc load(long x, long y) const {
    if constexpr (!format) return (Acc)*at(x, y);
    else {
      auto value = decode_table<value_type>.value[packed_code<value_type>(data, number(x, y))];
      if constexpr (scaled) value *= decode_table<fp8_ue8m0>.value[*scale(x, y)];
      return (Acc)value;
    }
  }
  MSL_UNCHECKED const uchar *scale(long x, long y) const {
    return scales + (scale_row + y) * scales_per_row + scale_column + x / 32;
  }
  // Reports the reading of the n elements from column x of row y on; they are contiguous.
  MSL_UNCHECKED void check_row(long x, long y, long n) const {
    if (n <= 0) return;
    long low = number(x, y);
    if constexpr (!format) msl_check(&data[low], n * sizeof(value_type), MSL_READ);
    else
      msl_check(&data[low * bits / 8], (low + n) * bits / 8 + ((low + n) * bits % 8 != 0) - low * bits / 8, MSL_READ);
    if constexpr (scaled) msl_check(scale(x, y), (x + n - 1) / 32 - x / 32 + 1, MSL_READ);
  }
  MSL_UNCHECKED void check_element(long x, long y, int access) const {
    long i = number(x, y);
    if constexpr (!format) msl_check(&data[i], sizeof(value_type), access);
    else msl_check(&data[i * bits / 8], 1, access);
  }

  template <class E> constexpr TensorView<T, E, SCALED> slice(const long *origin, E size) const {
    TensorView<T, E, SCALED> v;
    long moved = 0;
    for (int d = 0; d < rank; d++) {
      if (origin[d] < 0) msl_report("tensor-slice", "origin %ld of dimension %d is negative", origin[d], d);
      moved += origin[d] * strides[d];
      v.strides[d] = strides[d];
      v.left[d] = left[d] - origin[d];
      v.extents.e_[d] = size.e_[d];
    }
    if (moved * bits / 8 >= 1l << 31)
      msl_report("tensor-slice",
                 "the origin is %ld bytes into the tensor: offsets of 2 GiB or more wrap on known GPUs, "
                 "move the pointer instead",
                 moved * bits / 8);
    v.data = data;
    if constexpr (format) {
      v.first = first + moved;
      if (v.first * bits % 8) msl_report("tensor-slice", "the slice begins inside a byte, at element %ld", v.first);
    } else v.data += moved;
    if constexpr (SCALED) {
      if (origin[0] % 32)
        msl_report("tensor-slice", "origin %ld of the first dimension is inside a block of 32 that shares a scale",
                   origin[0]);
      v.scales = scales;
      v.scales_per_row = scales_per_row;
      v.scale_column = scale_column + origin[0] / 32;
      v.scale_row = scale_row + (rank > 1 ? origin[rank > 1] : 0);
    }
    return v;
  }
};

MSL_UNCHECKED inline const MslTensorBinding &bound(const MslTensorBinding *b) {
  if (!b) {
    msl_fail("binding", "tensor_handle that the host did not bind");
  }
  return *b;
}

template <class View> MSL_UNCHECKED View view_of_binding(const MslTensorBinding *handle) {
  const MslTensorBinding &b = bound(handle);
  if (b.rank != View::rank) {
    msl_fail("binding", "the kernel declares a tensor of rank %d, the host bound one of rank %d", View::rank, b.rank);
  }
  View v;
  v.data = (typename View::pointer)b.data;
  for (int d = 0; d < View::rank; d++) {
    v.extents.e_[d] = v.left[d] = b.extents[d];
    v.strides[d] = b.strides[d];
  }
  if constexpr (View::scaled) {
    if (!b.scales) {
      msl_fail("binding", "the kernel declares a tensor with scales, the host bound one without");
    }
    v.set_scales((uchar *)b.scales);
  }
  return v;
}
} // namespace msl
