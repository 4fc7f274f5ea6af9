// Few queries: what bounds them is the reading of keys and values, so each is read once for all the rows that share it,
// the queries of all heads of a key head. Simdgroups take a few keys in turn; a lane has some columns of them, and the
// softmax of one row and key.
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
inline long partial_at(ParamsRef p, long row, int split) { return (row * p.splits + split) * (p.v_head_dim + 2); }

// Sums N values over the simdgroup, N a power of two up to 32: lane l gets the sum of value l % N. Lanes exchange halves
// of what is left to sum, so this takes N shuffles where N sums would take five times as many.
template <int N>
inline float sum_each(thread float* values, uint lane) {
#pragma clang loop unroll(full)
  for (int half = N / 2; half > 0; half /= 2) {
    const bool upper = (lane & half) != 0;
#pragma clang loop unroll(full)
    for (int i = 0; i < half; ++i) {
      const float keep = upper ? values[i + half] : values[i], give = upper ? values[i] : values[i + half];
      values[i] = keep + metal::simd_shuffle_xor(give, ushort(half));
    }
  }
  float sum = values[0];
#pragma clang loop unroll(full)
  for (int other = N; other < 32; other *= 2) sum += metal::simd_shuffle_xor(sum, ushort(other));
  return sum;
}

// HEAD: the larger of both head dims is at most so. ROWS of query that a simdgroup holds.
template <typename T, int SIMDGROUPS, int HEAD, int ROWS>
struct Decode {
  enum {
    kThreads = 32 * SIMDGROUPS,
    kColumns = HEAD / 32,                             // of a lane
    kKeys = HEAD <= 128 ? 4 : HEAD <= 256 ? 2 : 1,  // at a time; as many as leave the registers room
    kPairs = ROWS * kKeys,
    // Rows that are merged at once, as many as 16 KiB hold, a quarter of what M1's core has (philipturner/
    // metal-benchmarks); and the simdgroups for each.
    kFit = 4096 / (SIMDGROUPS * HEAD),
    kTogether = kFit < 1 ? 1 : kFit < ROWS ? kFit : ROWS,
    kTeam = SIMDGROUPS / kTogether,
    kMergedFloats = kTogether * SIMDGROUPS * HEAD,
  };

  float query[ROWS * kColumns], weighted[ROWS * kColumns];
  // Lane l works out the softmax of pair l % kPairs of a row and a key. Of that row:
  float max, sum;
  int first, last;        // it sees [first, last) of the split's keys
  float slope, distance;  // from its position to the split's first key
  TileMask mask;          // from the split's first key on

  // Which head and position a row is, rows counted over the heads of a key head.
  struct Place {
    long head, query;
  };
  Place place_of(ParamsRef p, long kv_head, long number) thread {
    return {kv_head * (p.heads / p.kv_heads) + number / p.q_len, number % p.q_len};
  }

  void start(FlashAttentionBuffers<T> buffers, ParamsRef p, long batch, long kv_head, long number, int rows, long begin,
             long end, uint lane) thread {
#pragma clang loop unroll(full)
    for (int r = 0; r < ROWS; ++r) {
      const Place place = place_of(p, kv_head, number + metal::min(r, rows - 1));
      device const T* row = head_of(buffers, p, batch, place.head).query + place.query * p.q_stride[2];
      load_columns<T, kColumns>(row, int(lane) * kColumns, p.head_dim, query + r * kColumns);
    }
    for (int i = 0; i < ROWS * kColumns; ++i) weighted[i] = 0;
    max = -INFINITY, sum = 0;

    const int own = int(lane) % kPairs / kKeys;
    const Place place = place_of(p, kv_head, number + metal::min(own, rows - 1));
    const Head<T> head = head_of(buffers, p, batch, place.head);
    const KeyRange seen = keys_seen(p, place.query, place.query);
    first = int(metal::clamp(seen.first - begin, 0L, end - begin));
    last = own < rows ? int(metal::clamp(seen.last - begin, 0L, end - begin)) : 0;
    slope = head.slope;
    distance = float(begin - place.query - p.diagonal);
    mask = mask_of(head, p, place.query, begin);
  }

  // Keys from `key` on, of the `keys` of the split whose first is at `key_row` and `value_row`.
  void step(ParamsRef p, device const T* key_row, device const T* value_row, int key, uint lane) thread {
    const int of_step = int(lane) % kKeys, own = key + of_step, column = int(lane) * kColumns;
    bool seen = own >= first && own < last;
    float bias = 0;
    if (has_mask && seen) {
      bias = mask.bias(0, own);
      seen = bias != -INFINITY;
    }
    // What no row sees is not read.
    if (!metal::simd_any(seen)) return;
    float of_key[kKeys * kColumns], of_value[kKeys * kColumns];
#pragma clang loop unroll(full)
    for (int k = 0; k < kKeys; ++k) {
      const bool read = metal::simd_any(seen && of_step == k);
      load_columns<T, kColumns>(key_row + (key + k) * p.k_stride[2], column, read ? int(p.head_dim) : 0,
                                of_key + k * kColumns);
      load_columns<T, kColumns>(value_row + (key + k) * p.v_stride[2], column, read ? int(p.v_head_dim) : 0,
                                of_value + k * kColumns);
    }

    float products[kPairs];
#pragma clang loop unroll(full)
    for (int i = 0; i < kPairs; ++i) {
      products[i] = 0;
      for (int c = 0; c < kColumns; ++c) products[i] += query[i / kKeys * kColumns + c] * of_key[i % kKeys * kColumns + c];
    }
    const float logit = form_logit(sum_each<kPairs>(products, lane), p, slope, distance + float(own)) + bias;
    const float masked = seen ? logit : -INFINITY;
    const float now = metal::max(max, over_keys_max(masked)), decay = softmax_decay(max, now);
    const float weight = softmax_weight(masked, now);
    max = now;
    sum = sum * decay + over_keys_sum(weight);

#pragma clang loop unroll(full)
    for (int r = 0; r < ROWS; ++r) {
      const float shrunk = metal::simd_shuffle(decay, ushort(r * kKeys));
      for (int c = 0; c < kColumns; ++c) weighted[r * kColumns + c] *= shrunk;
#pragma clang loop unroll(full)
      for (int k = 0; k < kKeys; ++k) {
        const float share = metal::simd_shuffle(weight, ushort(r * kKeys + k));
        for (int c = 0; c < kColumns; ++c) weighted[r * kColumns + c] += share * of_value[k * kColumns + c];
      }
    }
  }

  // Over the lanes that have the keys of one row.
  float over_keys_max(float x) thread {
#pragma clang loop unroll(full)
    for (int other = 1; other < kKeys; other *= 2) x = metal::max(x, metal::simd_shuffle_xor(x, ushort(other)));
    return x;
  }
  float over_keys_sum(float x) thread {
#pragma clang loop unroll(full)
    for (int other = 1; other < kKeys; other *= 2) x += metal::simd_shuffle_xor(x, ushort(other));
    return x;
  }

  // Rows from `number` on, of a key head's group of heads, against the keys of one split.
  void run(FlashAttentionBuffers<T> buffers, device float* partials, ParamsRef p, long batch, long kv_head, long number,
           int split, threadgroup float* of_weighted, threadgroup float* of_simdgroup, uint simdgroup,
           uint lane) thread {
    const int rows = int(metal::min(long(p.heads / p.kv_heads) * p.q_len - number, long(ROWS)));
    const KeyRange all = keys_seen(p, 0, p.q_len - 1);
    const long begin = all.first + split * p.keys_per_split;
    const long end = metal::max(begin, metal::min(begin + p.keys_per_split, all.last));
    start(buffers, p, batch, kv_head, number, rows, begin, end, lane);

    device const T* key_row = buffers.key + batch * p.k_stride[0] + kv_head * p.k_stride[1] + begin * p.k_stride[2];
    device const T* value_row = buffers.value + batch * p.v_stride[0] + kv_head * p.v_stride[1] + begin * p.v_stride[2];
    for (int key = int(simdgroup) * kKeys; key < int(end - begin); key += SIMDGROUPS * kKeys)
      step(p, key_row, value_row, key, lane);

    merge(buffers, partials, p, batch, kv_head, number, rows, split, of_weighted, of_simdgroup, simdgroup, lane);
  }

  // Puts the simdgroups' parts of all rows together.
  void merge(FlashAttentionBuffers<T> buffers, device float* partials, ParamsRef p, long batch, long kv_head,
             long number, int rows, int split, threadgroup float* of_weighted, threadgroup float* of_simdgroup,
             uint simdgroup, uint lane) thread {
    const int own = int(lane) / kKeys;
    if (own < ROWS && int(lane) % kKeys == 0) {
      of_simdgroup[own * SIMDGROUPS + simdgroup] = max;
      of_simdgroup[(ROWS + own) * SIMDGROUPS + simdgroup] = sum;
    }
#pragma clang loop unroll(full)
    for (int first_row = 0; first_row < ROWS; first_row += kTogether) {
      if (first_row >= rows) continue;
      // The rows before these have been read.
      if (first_row > 0) metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
#pragma clang loop unroll(full)
      for (int i = 0; i < kTogether; ++i) {
        if (first_row + i >= rows) continue;
        threadgroup float* of_row = of_weighted + (i * SIMDGROUPS + int(simdgroup)) * HEAD + int(lane) * kColumns;
        for (int c = 0; c < kColumns; ++c) of_row[c] = weighted[(first_row + i) * kColumns + c];
      }
      metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);

      const int mine = int(simdgroup) / kTeam, r = first_row + mine;
      if (r >= rows) continue;
      const Place place = place_of(p, kv_head, number + r);
      finish(head_of(buffers, p, batch, place.head), partials, p, place.query,
             (batch * p.heads + place.head) * p.q_len + place.query, split, of_weighted + mine * SIMDGROUPS * HEAD,
             of_simdgroup + r * SIMDGROUPS, int(simdgroup) % kTeam, lane);
    }
  }

  // Ends one row, which is row `number` of lse; a simdgroup does every kTeam-th 32 columns from `part` on.
  void finish(Head<T> h, device float* partials, ParamsRef p, long position, long number, int split,
              threadgroup const float* of_weighted, threadgroup const float* of_simdgroup, int part,
              uint lane) thread {
    // A lane works out what one simdgroup's part is worth.
    const int of = int(lane) % SIMDGROUPS;
    const float its_max = of_simdgroup[of], its_sum = of_simdgroup[ROWS * SIMDGROUPS + of];
    const float top = metal::simd_max(its_max), worth = softmax_decay(its_max, top);
    const float total = metal::simd_sum(int(lane) < SIMDGROUPS ? its_sum * worth : 0.0f);
    float share[SIMDGROUPS];
    for (int s = 0; s < SIMDGROUPS; ++s) share[s] = metal::simd_shuffle(worth, ushort(s));

    const SoftmaxEnd end = softmax_end(top, total, h.sink);
    device float* partial = partials + partial_at(p, number, split);
    for (int d = part * 32 + int(lane); d < p.v_head_dim; d += kTeam * 32) {
      float whole = 0;
      for (int s = 0; s < SIMDGROUPS; ++s) whole += of_weighted[s * HEAD + d] * share[s];
      if (splits_keys) partial[d] = whole;
      else h.out[position * p.out_stride[2] + d] = T(softmax_output(whole, end.factor));
    }
    if (part != 0 || lane != 0) return;
    if (splits_keys) partial[p.v_head_dim] = top, partial[p.v_head_dim + 1] = total;
    else h.lse[position] = end.lse;
  }
};

// Puts the splits of a row together. By one simdgroup.
template <typename T>
inline void merge_splits(device const float* partials, ParamsRef p, long row, float sink, device T* out,
                         device float* lse, uint lane) {
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
