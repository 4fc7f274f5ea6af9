// Many queries on simdgroup_matrix: a simdgroup owns eight rows, whose logits, sums and output stay in its registers;
// keys and values are staged tile by tile for the whole threadgroup.
#pragma once

#include "common/online_softmax.h"
#include "flash_attention/logits.h"
#include "tile/fragment.h"
#include "tile/stage.h"

// Keys of a tile: as many as leave the registers and threadgroup memory room.
template <int HEAD>
constexpr int prefill_keys() {
  return HEAD == 64 || HEAD == 96 ? 32 : 16;
}

// HEAD: head dims up to it keep the query in registers; 0: any, the query is read again for each tile of keys. VALUE:
// columns of out that a threadgroup computes.
template <typename T, int SIMDGROUPS, int KEYS, int HEAD, int VALUE>
struct PrefillSimdgroup {
  enum {
    kRows = 8,
    kThreads = 32 * SIMDGROUPS,
    kPart = HEAD == 0 ? 64 : HEAD,  // of the head dim that is staged at a time
    kKeyRow = staged_row<T, kPart>(),
    kValueRow = staged_row<T, VALUE>(),
    kKeyTile = KEYS * kKeyRow,
    kValueTile = KEYS * kValueRow,
  };

  Fragment<T> query[kPart / 8];
  Fragment<float> logits[KEYS / 8], out[VALUE / 8];
  float row_max, row_sum;

  void load_query(Head<T> h, ParamsRef p, long first_row, int rows, int part, FragmentPlace place) thread {
    device const T* from = h.query + first_row * p.q_stride[2];
#pragma clang loop unroll(full)
    for (int d = 0; d < kPart / 8; ++d)
      query[d] = load_fragment<T>(from, p.q_stride[2], rows, part + d * 8, p.head_dim, place);
  }

  // Adds the products over the staged part of the head dim.
  void multiply_keys(threadgroup const T* keys, int columns) thread {
#pragma clang loop unroll(full)
    for (int d = 0; d < kPart / 8; ++d) {
      if (d * 8 >= columns) continue;
#pragma clang loop unroll(full)
      for (int n = 0; n < KEYS / 8; ++n) {
        Fragment<T> key;
        metal::simdgroup_load(key, keys + n * 8 * kKeyRow + d * 8, kKeyRow, ulong2(0), true);
        metal::simdgroup_multiply_accumulate(logits[n], query[d], key, logits[n]);
      }
    }
  }

  // Turns products into logits, logits into weights, and the output so far to the new maximum.
  void softmax(ParamsRef p, float slope, float distance, TileSight sight, TileMask mask, int rows,
               FragmentPlace place) thread {
    const bool sees_all = sight.sees_all(kRows, KEYS);
    float tile_max = -INFINITY;
#pragma clang loop unroll(full)
    for (int n = 0; n < KEYS / 8; ++n) {
#pragma clang loop unroll(full)
      for (int i = 0; i < 2; ++i) {
        const int row = place.row, column = n * 8 + place.column + i;
        const bool seen = sees_all || sight.sees(row, column);
        const float logit =
            form_logit(logits[n].thread_elements()[i], p, slope, distance + float(column - row));
        const float masked = masked_logit(logit, seen && row < rows, mask, row, column);
        logits[n].thread_elements()[i] = masked;
        tile_max = metal::max(tile_max, masked);
      }
    }
    const float now = metal::max(row_max, fragment_row_max(tile_max)), decay = softmax_decay(row_max, now);
    row_max = now;
    float tile_sum = 0;
#pragma clang loop unroll(full)
    for (int n = 0; n < KEYS / 8; ++n) {
#pragma clang loop unroll(full)
      for (int i = 0; i < 2; ++i) {
        const float weight = softmax_weight(logits[n].thread_elements()[i], now);
        logits[n].thread_elements()[i] = weight;
        tile_sum += weight;
      }
    }
    row_sum = row_sum * decay + fragment_row_sum(tile_sum);
#pragma clang loop unroll(full)
    for (int d = 0; d < VALUE / 8; ++d) out[d].thread_elements() *= decay;
  }

  void multiply_values(threadgroup const T* values, int columns) thread {
#pragma clang loop unroll(full)
    for (int n = 0; n < KEYS / 8; ++n) {
      Fragment<T> weights;
      for (int i = 0; i < 2; ++i) weights.thread_elements()[i] = T(logits[n].thread_elements()[i]);
#pragma clang loop unroll(full)
      for (int d = 0; d < VALUE / 8; ++d) {
        if (d * 8 >= columns) continue;
        Fragment<T> value;
        metal::simdgroup_load(value, values + n * 8 * kValueRow + d * 8, kValueRow);
        metal::simdgroup_multiply_accumulate(out[d], weights, value, out[d]);
      }
    }
  }

  // `seen` holds two flags a simdgroup; a tile that the mask hides from all of them is not read.
  void run(Head<T> h, ParamsRef p, uint tile, int chunk, threadgroup T* keys, threadgroup T* values,
           threadgroup bool* seen, uint simdgroup, uint lane) thread {
    const FragmentPlace place(lane);
    const long group_row = long(tile) * (kRows * SIMDGROUPS), first_row = group_row + simdgroup * kRows;
    const int rows = int(metal::clamp(p.q_len - first_row, 0L, long(kRows)));
    const int first_column = chunk * VALUE, columns = metal::min(int(p.v_head_dim) - first_column, VALUE);
    const uint thread_index = simdgroup * 32 + lane;
    row_max = -INFINITY, row_sum = 0;
    for (int d = 0; d < VALUE / 8; ++d) out[d] = Fragment<float>(0);
    if (HEAD != 0) load_query(h, p, first_row, rows, 0, place);

    const long last_row = metal::min(group_row + kRows * SIMDGROUPS, long(p.q_len)) - 1;
    const KeyRange range = keys_seen(p, group_row, last_row);
    uint turn = 0;
    for (long key = range.first / KEYS * KEYS; key < range.last; key += KEYS) {
      const TileSight sight = sight_of<KEYS>(p, first_row, key, key);
      const TileMask mask = mask_of(h, p, first_row, key);
      bool wanted = rows > 0 && !sight.sees_none(kRows, KEYS);
      if (has_mask) {
        wanted = wanted && shows_any<kRows, KEYS>(mask, sight, rows, lane);
        if (lane == 0) seen[turn * SIMDGROUPS + simdgroup] = wanted;
      }
      // The tiles before this one have been read, and every flag is set.
      metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      if (has_mask) {
        bool by_any = false;
        for (int s = 0; s < SIMDGROUPS; ++s) by_any |= seen[turn * SIMDGROUPS + s];
        turn ^= 1;  // these flags are read while the next ones are set
        if (!by_any) continue;
      }
      const int staged = int(metal::min(p.kv_len - key, long(KEYS)));
      stage<T, KEYS, VALUE, kThreads>(h.value + key * p.v_stride[2] + first_column, p.v_stride[2], staged, columns,
                                      values, thread_index);
      for (int n = 0; n < KEYS / 8; ++n) logits[n] = Fragment<float>(0);
      for (int part = 0; part < p.head_dim; part += kPart) {
        const int part_columns = metal::min(int(p.head_dim) - part, int(kPart));
        if (part > 0) metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        stage<T, KEYS, kPart, kThreads>(h.key + key * p.k_stride[2] + part, p.k_stride[2], staged, part_columns, keys,
                                        thread_index);
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        if (!wanted) continue;
        if (HEAD == 0) load_query(h, p, first_row, rows, part, place);
        multiply_keys(keys, part_columns);
      }
      if (!wanted) continue;
      softmax(p, h.slope, float(key - first_row - p.diagonal), sight, mask, rows, place);
      multiply_values(values, columns);
    }

    const SoftmaxEnd end = softmax_end(row_max, row_sum, h.sink);
    if (place.row >= rows) return;
    const long row = first_row + place.row;
    device T* to = h.out + row * p.out_stride[2] + first_column;
#pragma clang loop unroll(full)
    for (int d = 0; d < VALUE / 8; ++d) {
      for (int i = 0; i < 2; ++i) {
        const int column = d * 8 + place.column + i;
        if (column < columns) to[column] = T(softmax_output(out[d].thread_elements()[i], end.factor));
      }
    }
    if (chunk == 0 && place.column == 0) h.lse[row] = end.lse;
  }
};
