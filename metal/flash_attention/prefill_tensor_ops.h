// Many queries on matmul2d: a simdgroup owns sixteen rows, whose logits, sums and output stay in its registers as
// cooperative tensors. Which lane holds what is asked of the API, never assumed.
#pragma once

#include "common/online_softmax.h"
#include "flash_attention/logits.h"
#include "flash_attention/tensor_tiles.h"

// Products become logits.
template <class Tile>
inline void form_logits(thread Tile& tile, ParamsRef p, float slope, float distance, TileSight sight, TileMask mask,
                        int rows) {
  const bool sees_all = sight.sees_all(kTensorRows, kTensorKeys);
#pragma clang loop unroll(full)
  for (int i = 0; i < tile.get_capacity(); ++i) {
    if (!tile.is_valid_element(i)) continue;
    const auto index = tile.get_multidimensional_index(i);
    const int row = index[1], column = index[0];
    const bool seen = row < rows && (sees_all || sight.sees(row, column));
    tile[i] = masked_logit(form_logit(tile[i], p, slope, distance + float(column - row)), seen, mask, row, column);
  }
}

// Rows from first_row on, and VALUE columns of out. `memory` holds a tile of weights for this simdgroup.
template <typename T, int VALUE>
inline void prefill_tensor_ops(Head<T> h, ParamsRef p, long first_row, int chunk, threadgroup T* memory, uint lane) {
  using namespace mpp::tensor_ops;
  // Modes are named and destinations cleared: headers and reports differ on what `multiply` does with what is there.
  constexpr auto of_scores =
      matmul2d_descriptor(kTensorRows, kTensorKeys, static_cast<int>(metal::dynamic_extent), false, true, false,
                          matmul2d_descriptor::mode::multiply);
  constexpr auto of_output = matmul2d_descriptor(kTensorRows, kTensorColumns, kTensorKeys, false, false, false,
                                                 matmul2d_descriptor::mode::multiply_accumulate);
  using Scores = matmul2d<of_scores, metal::execution_simdgroup>;
  using Output = matmul2d<of_output, metal::execution_simdgroup>;
  Scores scores;
  Output output;

  const int rows = int(metal::min(p.q_len - first_row, long(kTensorRows)));
  const int first_column = chunk * VALUE, columns = metal::min(int(p.v_head_dim) - first_column, VALUE);
  DeviceView<T> queries = view_of(h.query + first_row * p.q_stride[2], p.head_dim, rows, p.q_stride[2]);
  auto tile = new_destination<Scores, DeviceView<T>, DeviceView<T>>();
  auto weights = output.template get_left_input_cooperative_tensor<T, T, float>();
  OutTiles<T, Output, metal::remove_addrspace_t<decltype(weights)>, VALUE / kTensorColumns> out;
  out.clear();
#define ROW_VALUES scores.template get_row_reduction_destination_cooperative_tensor<DeviceView<T>, DeviceView<T>, float>()
  auto row_max = ROW_VALUES, row_sum = ROW_VALUES, of_tile = ROW_VALUES, decay = ROW_VALUES;
#undef ROW_VALUES
  fill(row_max, -INFINITY);
  fill(row_sum, 0);
  const bool alike = !weights_in_memory && output.template is_compatible_as_left_input<float, T, float>(tile) &&
                     same_places(tile, weights);

  const KeyRange range = keys_seen(p, first_row, first_row + rows - 1);
  for (long next = range.first; next < range.last; next += kTensorKeys) {
    const long key = metal::min(next, p.kv_len - kTensorKeys);
    const TileSight sight = sight_of<kTensorKeys>(p, first_row, key, next);
    const TileMask mask = mask_of(h, p, first_row, key);
    if (has_mask && !shows_any<kTensorRows, kTensorKeys>(mask, sight, rows, lane)) continue;

    fill(tile, 0);
    DeviceView<T> keys = view_of(h.key + key * p.k_stride[2], p.head_dim, kTensorKeys, p.k_stride[2]);
    scores.run(queries, keys, tile);
    form_logits(tile, p, h.slope, float(key - first_row - p.diagonal), sight, mask, rows);
    reduce_rows(tile, of_tile, reduction_operation::max, -INFINITY);
    for (int i = 0; i < row_max.get_capacity(); ++i) {
      const float now = metal::max(row_max[i], of_tile[i]);
      decay[i] = softmax_decay(row_max[i], now);
      row_max[i] = now;
    }
    form_weights(tile, row_max);
    reduce_rows(tile, of_tile, reduction_operation::sum, 0.0f);
    for (int i = 0; i < row_sum.get_capacity(); ++i) row_sum[i] = row_sum[i] * decay[i] + of_tile[i];
    out.scale(decay);
    to_left_input<T>(tile, weights, alike, memory);
    out.add(weights, h.value + key * p.v_stride[2] + first_column, p.v_stride[2], columns);
  }

  for (int i = 0; i < row_max.get_capacity(); ++i) {
    const SoftmaxEnd end = softmax_end(row_max[i], row_sum[i], h.sink);
    decay[i] = end.factor;
    of_tile[i] = end.lse;
  }
  out.store(decay, h.out + first_row * p.out_stride[2] + first_column, p.out_stride[2], rows, columns);
  if (chunk != 0) return;
  // Several lanes have a row's lse; one of them has the row's first column.
  for (auto it = tile.begin(); it != tile.end(); it++) {
    if (!tile.is_valid_element(it)) continue;
    const auto index = it.get_multidimensional_index();
    if (index[0] == 0 && index[1] < rows) h.lse[first_row + index[1]] = *of_tile.map_iterator(it);
  }
}
