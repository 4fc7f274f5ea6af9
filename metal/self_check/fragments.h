// What attention on simdgroup_matrix relies on: which lane holds what of a matrix, read and written; two products, the
// second of which takes what the first made; and the largest and the sum of a row, over the lanes that share it.
#pragma once

#include "self_check/params.h"
#include "tile/fragment.h"
#include "tile/stage.h"

// The weights are the row's largest product less the product. `rows` is [2, 8], the largest and the sum of the weights.
template <typename T>
inline void check_fragments(device const T* query, device const T* key, device const T* value, device float* rows,
                            device float* out, threadgroup T* keys, threadgroup T* values, uint lane) {
  using Sizes = SelfCheckFragments;
  constexpr int kKeyRow = staged_row<T, Sizes::head_dim>(), kValueRow = staged_row<T, Sizes::value_dim>();
  stage<T, Sizes::keys, Sizes::head_dim, 32>(key, Sizes::head_dim, Sizes::keys, Sizes::head_dim, keys, lane);
  stage<T, Sizes::keys, Sizes::value_dim, 32>(value, Sizes::value_dim, Sizes::keys, Sizes::value_dim, values, lane);
  metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);

  const FragmentPlace place(lane);
  Fragment<float> products = Fragment<float>(0), sums = Fragment<float>(0);
  for (int d = 0; d < Sizes::head_dim; d += 8) {
    const Fragment<T> q = load_fragment<T>(query, Sizes::head_dim, Sizes::rows, d, Sizes::head_dim, place);
    Fragment<T> k;
    metal::simdgroup_load(k, keys + d, kKeyRow, ulong2(0), true);
    metal::simdgroup_multiply_accumulate(products, q, k, products);
  }
  const float largest = fragment_row_max(metal::max(products.thread_elements()[0], products.thread_elements()[1]));
  Fragment<T> weights;
  float sum = 0;
  for (int i = 0; i < 2; ++i) {
    const float weight = largest - products.thread_elements()[i];
    weights.thread_elements()[i] = T(weight);
    sum += weight;
  }
  sum = fragment_row_sum(sum);
  Fragment<T> v;
  metal::simdgroup_load(v, values, kValueRow);
  metal::simdgroup_multiply_accumulate(sums, weights, v, sums);

  for (int i = 0; i < 2; ++i)
    out[place.row * Sizes::value_dim + place.column + i] = sums.thread_elements()[i];
  if (place.column != 0) return;
  rows[place.row] = largest;
  rows[8 + place.row] = sum;
}
