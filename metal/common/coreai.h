// Core AI gives a kernel tensor handles; kernels of ours work on pointers, sizes and strides.
#pragma once

#include <metal_tensor>

// Sizes and strides are in elements and in torch's order: the last dimension is the dense one. An operand that a call
// leaves out has no data.
template <typename T, int RANK>
struct Operand {
  device T* data;
  long size[RANK], stride[RANK];
};

// Where a thread is.
struct ThreadPlace {
  uint3 group, groups, position, threads;
  uint simdgroup, lane;

  uint thread_index() const thread { return simdgroup * 32 + lane; }
};

// Of kernels whose threadgroups share nothing.
struct NoMemory {
  uint none;
};

// The element `step` along one dimension, counted from the innermost as handles do, and first in the others.
template <int RANK, class Handle>
inline auto element_at(thread Handle& handle, int dimension, int step) {
  const int a = dimension == 0 ? step : 0, b = dimension == 1 ? step : 0, c = dimension == 2 ? step : 0,
            d = dimension == 3 ? step : 0;
  if constexpr (RANK == 1) return &handle[a];
  else if constexpr (RANK == 2) return &handle[a, b];
  else if constexpr (RANK == 3) return &handle[a, b, c];
  else return &handle[a, b, c, d];
}

// Addresses tell strides in every version of the language; handles have a word for them only in the newest.
template <typename T, int RANK, class Handle>
inline Operand<T, RANK> operand(thread Handle& handle) {
  Operand<T, RANK> x;
  x.data = element_at<RANK>(handle, 0, 0);
#pragma clang loop unroll(full)
  for (int i = 0; i < RANK; ++i) {
    const int inner = RANK - 1 - i;
    x.size[i] = handle.get_extent(inner);
    x.stride[i] = x.size[i] > 1 ? element_at<RANK>(handle, inner, 1) - x.data : 0;
  }
  return x;
}

template <typename T, int RANK>
inline Operand<T, RANK> no_operand() {
  Operand<T, RANK> x;
  x.data = nullptr;
#pragma clang loop unroll(full)
  for (int i = 0; i < RANK; ++i) x.size[i] = x.stride[i] = 0;
  return x;
}
