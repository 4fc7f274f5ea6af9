// Few queries: what bounds them is the reading of keys and values, so each is read once for all the rows that share it,
// the queries of all heads of a key head. A simdgroup takes every SIMDGROUPS-th key, its lanes the columns.
#pragma once

#include "common/online_softmax.h"
#include "flash_attention/logits.h"
#include "tile/stage.h"

// Columns [column, column + N) of a row in memory; zero from `columns` on.
template <typename T, int N>
inline void load_columns(device const T* row, int column, int columns, thread float* to) {
  if (column + N > columns) {
    for (int i = 0; i < N; ++i) to[i] = column + i < columns ? float(row[column + i]) : 0.0f;
    return;
  }
  for (int i = 0; i < N / 4 * 4; i += 4) {
    const typename PackedFour<T>::type four = *(device const typename PackedFour<T>::type*)(row + column + i);
    for (int j = 0; j < 4; ++j) to[i + j] = float(four[j]);
  }
  for (int i = N / 4 * 4; i < N; ++i) to[i] = float(row[column + i]);
}

// A row's share of the keys: weighted values relative to `max`, then max and sum, v_head_dim + 2 floats.
inline long partial_at(constant FlashAttentionParams& p, long row, int split) {
  return (row * p.splits + split) * (p.v_head_dim + 2);
}

// HEAD: the larger of both head dims is at most so. ROWS of query that a simdgroup holds.
template <typename T, int SIMDGROUPS, int HEAD, int ROWS>
struct Decode {
  enum { kColumns = HEAD / 32, kThreads = 32 * SIMDGROUPS };  // of a lane

  // What a row needs at every key, and no more: there are up to eight of them in the registers.
  struct Row {
    float query[kColumns], weighted[kColumns], max, sum;
    int first, last;  // it sees [first, last) of the split's keys
    float slope, distance;  // from its position to the split's first key
    long mask_at;           // of the split's first key
  };
  Row row[ROWS];

  // Which head and position the row of that number is, counted over the heads of a key head.
  struct Place {
    long head, query;
  };
  Place place_of(constant FlashAttentionParams& p, long kv_head, long number) thread {
    return {kv_head * (p.heads / p.kv_heads) + number / p.q_len, number % p.q_len};
  }

  void start(Head<T> h, constant FlashAttentionParams& p, long query, long begin, long end, uint lane,
             thread Row& r) thread {
    const KeyRange seen = keys_seen(p, query, query);
    r.first = int(metal::clamp(seen.first - begin, 0L, end - begin));
    r.last = int(metal::clamp(seen.last - begin, 0L, end - begin));
    r.slope = h.slope;
    r.distance = float(begin - query - p.diagonal);
    r.mask_at = mask_of(h, p, query, begin).at;
    load_columns<T, kColumns>(h.query + query * p.q_stride[2], int(lane) * kColumns, p.head_dim, r.query);
    for (int c = 0; c < kColumns; ++c) r.weighted[c] = 0;
    r.max = -INFINITY, r.sum = 0;
  }

  // The logit of a key that the row sees. Every lane has it.
  float logit_of(constant FlashAttentionParams& p, device const uchar* mask, thread const Row& r, int key,
                 thread const float* of_key) thread {
    float product = 0;
    for (int c = 0; c < kColumns; ++c) product += r.query[c] * of_key[c];
    const TileMask masked{mask, r.mask_at, 0, p.mask_stride[3]};
    const float logit = form_logit(metal::simd_sum(product), p, r.slope, r.distance + float(key));
    return masked_logit(logit, true, masked, 0, key);
  }

  void add(thread Row& r, float logit, thread const float* of_value) thread {
    const float now = metal::max(r.max, logit), decay = softmax_decay(r.max, now), weight = softmax_weight(logit, now);
    r.max = now;
    r.sum = r.sum * decay + weight;
    for (int c = 0; c < kColumns; ++c) r.weighted[c] = r.weighted[c] * decay + weight * of_value[c];
  }

  // Rows from `first` on, of a key head's group of heads, against the keys of one split.
  void run(FlashAttentionBuffers<T> buffers, device float* partials, constant FlashAttentionParams& p, long batch,
           long kv_head, long first, int split, threadgroup float* weighted, threadgroup float* of_simdgroup,
           uint simdgroup, uint lane) thread {
    const int rows = int(metal::min(long(p.heads / p.kv_heads) * p.q_len - first, long(ROWS)));
    const KeyRange all = keys_seen(p, 0, p.q_len - 1);
    const long begin = all.first + split * p.keys_per_split;
    const long end = metal::max(begin, metal::min(begin + p.keys_per_split, all.last));
    for (int r = 0; r < ROWS; ++r) {
      if (r >= rows) continue;
      const Place place = place_of(p, kv_head, first + r);
      start(head_of(buffers, p, batch, place.head), p, place.query, begin, end, lane, row[r]);
    }

    const int column = int(lane) * kColumns, keys = int(end - begin);
    device const T* key_row = buffers.key + batch * p.k_stride[0] + kv_head * p.k_stride[1] + begin * p.k_stride[2];
    device const T* value_row = buffers.value + batch * p.v_stride[0] + kv_head * p.v_stride[1] + begin * p.v_stride[2];
    for (int key = int(simdgroup); key < keys; key += SIMDGROUPS) {
      float of_key[kColumns], of_value[kColumns];
      load_columns<T, kColumns>(key_row + key * p.k_stride[2], column, p.head_dim, of_key);
      load_columns<T, kColumns>(value_row + key * p.v_stride[2], column, p.v_head_dim, of_value);
#pragma clang loop unroll(full)
      for (int r = 0; r < ROWS; ++r) {
        if (r >= rows || key < row[r].first || key >= row[r].last) continue;
        const float logit = logit_of(p, buffers.mask, row[r], key, of_key);
        if (logit != -INFINITY) add(row[r], logit, of_value);
      }
    }
#pragma clang loop unroll(full)
    for (int r = 0; r < ROWS; ++r) {
      if (r >= rows) continue;
      const Place place = place_of(p, kv_head, first + r);
      finish(head_of(buffers, p, batch, place.head), partials, p, place.query,
             (batch * p.heads + place.head) * p.q_len + place.query, split, row[r], weighted, of_simdgroup, simdgroup,
             lane);
    }
  }

  // Puts the simdgroups' parts of a row together; `number` is the row's among all rows of lse.
  void finish(Head<T> h, device float* partials, constant FlashAttentionParams& p, long query, long number, int split,
              thread const Row& r, threadgroup float* weighted, threadgroup float* of_simdgroup, uint simdgroup,
              uint lane) thread {
    // The row before this one has been read.
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    for (int c = 0; c < kColumns; ++c) weighted[simdgroup * HEAD + lane * kColumns + c] = r.weighted[c];
    if (lane == 0) of_simdgroup[simdgroup] = r.max, of_simdgroup[SIMDGROUPS + simdgroup] = r.sum;
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);

    float max = -INFINITY, sum = 0, share[SIMDGROUPS];
    for (int s = 0; s < SIMDGROUPS; ++s) max = metal::max(max, of_simdgroup[s]);
    for (int s = 0; s < SIMDGROUPS; ++s) {
      share[s] = softmax_decay(of_simdgroup[s], max);
      sum += of_simdgroup[SIMDGROUPS + s] * share[s];
    }
    const SoftmaxEnd end = softmax_end(max, sum, h.sink);
    device float* partial = partials + partial_at(p, number, split);
    for (int d = int(simdgroup * 32 + lane); d < p.v_head_dim; d += kThreads) {
      float whole = 0;
      for (int s = 0; s < SIMDGROUPS; ++s) whole += weighted[s * HEAD + d] * share[s];
      if (splits_keys) partial[d] = whole;
      else h.out[query * p.out_stride[2] + d] = T(softmax_output(whole, end.factor));
    }
    if (simdgroup != 0 || lane != 0) return;
    if (splits_keys) partial[p.v_head_dim] = max, partial[p.v_head_dim + 1] = sum;
    else h.lse[query] = end.lse;
  }
};

// Puts the splits of a row together. By one simdgroup.
template <typename T>
inline void merge_splits(device const float* partials, constant FlashAttentionParams& p, long row, float sink,
                         device T* out, device float* lse, uint lane) {
  const int max_at = p.v_head_dim, sum_at = p.v_head_dim + 1;
  float max = -INFINITY, sum = 0;
  for (int s = int(lane); s < p.splits; s += 32) max = metal::max(max, partials[partial_at(p, row, s) + max_at]);
  max = metal::simd_max(max);
  for (int s = int(lane); s < p.splits; s += 32) {
    device const float* partial = partials + partial_at(p, row, s);
    sum += partial[sum_at] * softmax_decay(partial[max_at], max);
  }
  const SoftmaxEnd end = softmax_end(max, metal::simd_sum(sum), sink);
  for (int d = int(lane); d < p.v_head_dim; d += 32) {
    float whole = 0;
    for (int s = 0; s < p.splits; ++s) {
      device const float* partial = partials + partial_at(p, row, s);
      whole += partial[d] * softmax_decay(partial[max_at], max);
    }
    out[d] = T(softmax_output(whole, end.factor));
  }
  if (lane == 0) *lse = end.lse;
}
