// What attention asks of cooperative tensors, step by step as prefill_tensor_ops() takes it, with weights that are exact:
// the row's largest product so far less the product, and a decay of a half where a larger one came.
#pragma once

#include "flash_attention/tensor_tiles.h"
#include "self_check/params.h"

// `rows` is [2, 16]: the largest product of a row, and the sum of its weights.
template <typename T>
inline void check_rows(device const T* query, device const T* key, device const T* value,
                       constant SelfCheckRowsParams& p, device float* rows, device T* out, threadgroup T* memory) {
  using namespace mpp::tensor_ops;
  using Sizes = SelfCheckRows;
  constexpr auto of_scores =
      matmul2d_descriptor(kTensorRows, kTensorKeys, static_cast<int>(metal::dynamic_extent), false, true, false,
                          matmul2d_descriptor::mode::multiply);
  constexpr auto of_output = matmul2d_descriptor(kTensorRows, kTensorColumns, kTensorKeys, false, false, false,
                                                 matmul2d_descriptor::mode::multiply_accumulate);
  using Scores = matmul2d<of_scores, metal::execution_simdgroup>;
  using Output = matmul2d<of_output, metal::execution_simdgroup>;
  Scores scores;
  Output output;

  DeviceView<T> queries = view_of(query, Sizes::head_dim, Sizes::rows, Sizes::head_dim);
  auto tile = new_destination<Scores, DeviceView<T>, DeviceView<T>>();
  auto weights = output.template get_left_input_cooperative_tensor<T, T, float>();
  OutTiles<T, Output, metal::remove_addrspace_t<decltype(weights)>, 2> sums;
  sums.clear();
#define ROW_VALUES scores.template get_row_reduction_destination_cooperative_tensor<DeviceView<T>, DeviceView<T>, float>()
  auto row_max = ROW_VALUES, row_sum = ROW_VALUES, of_tile = ROW_VALUES, factor = ROW_VALUES;
#undef ROW_VALUES
  fill(row_max, -INFINITY);
  fill(row_sum, 0);
  const bool alike = p.in_memory == 0 && output.template is_compatible_as_left_input<float, T, float>(tile) &&
                     same_places(tile, weights);

  for (int from = 0; from < Sizes::keys; from += kTensorKeys) {
    fill(tile, 0);
    DeviceView<T> keys = view_of(key + from * Sizes::head_dim, Sizes::head_dim, kTensorKeys, Sizes::head_dim);
    scores.run(queries, keys, tile);
#pragma clang loop unroll(full)
    for (int i = 0; i < tile.get_capacity(); ++i)
      if (tile.is_valid_element(i) && tile.get_multidimensional_index(i)[1] >= Sizes::rows) tile[i] = 0;
    reduce_rows(tile, of_tile, reduction_operation::max, -INFINITY);
    for (int i = 0; i < row_max.get_capacity(); ++i) {
      factor[i] = of_tile[i] > row_max[i] ? 0.5f : 1.0f;
      row_max[i] = metal::max(row_max[i], of_tile[i]);
    }
    for (auto it = tile.begin(); it != tile.end(); it++)
      if (tile.is_valid_element(it)) *it = *row_max.map_iterator(it) - *it;
    reduce_rows(tile, of_tile, reduction_operation::sum, 0.0f);
    for (int i = 0; i < row_sum.get_capacity(); ++i) row_sum[i] = row_sum[i] * factor[i] + of_tile[i];
    sums.scale(factor);
    to_left_input<T>(tile, weights, alike, memory);
    sums.add(weights, value + from * Sizes::value_dim, Sizes::value_dim, Sizes::value_dim);
  }

  for (int i = 0; i < row_max.get_capacity(); ++i) factor[i] = row_max[i] < float(Sizes::doubled_from) ? 1.0f : 2.0f;
  sums.store(factor, out, Sizes::value_dim, Sizes::rows, Sizes::value_dim);
  for (auto it = tile.begin(); it != tile.end(); it++) {
    if (!tile.is_valid_element(it)) continue;
    const auto index = it.get_multidimensional_index();
    if (index[0] != 0 || index[1] >= Sizes::rows) continue;
    rows[index[1]] = *row_max.map_iterator(it);
    rows[kTensorRows + index[1]] = *row_sum.map_iterator(it);
  }
}
