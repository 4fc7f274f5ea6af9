// The kernels of flash_attention in assets of Core AI. The texts that export/coreai writes around them define has_mask
// and the other features, and beside them softmax_scale, softcap, upper_left, window_left, window_right and
// <operand>_rows_first; they call one of these structs: `memory` is what its threadgroup shares.
//
// query [B, H, Lq, D], or [B, Lq, H, D] where query_rows_first; so key and value. mask [B, H, Lq, Lk] or 1 for any of
// them, sinks [H], alibi_slopes [B, H] or [1, H], out [B, Lq, H, Dv], lse [B, H, Lq].
#pragma once

#include "common/coreai.h"
#include "flash_attention/params.h"

using ParamsRef = thread const FlashAttentionParams&;

#include "flash_attention/decode.h"
#include "flash_attention/prefill_simdgroup.h"
#include "flash_attention/prefill_tensor_ops.h"

template <typename T>
inline Operand<T, 4> heads_first(Operand<T, 4> x, bool rows_first) {
  Operand<T, 4> y = x;
  if (rows_first) {
    y.size[1] = x.size[2], y.size[2] = x.size[1];
    y.stride[1] = x.stride[2], y.stride[2] = x.stride[1];
  }
  return y;
}

// What a call has, in the order of its dimensions that params have. M: the mask's element type.
template <typename T, typename M>
struct CoreAiCall {
  Operand<T, 4> query, key, value, out;
  Operand<M, 4> mask;
  Operand<float, 1> sinks;
  Operand<float, 2> alibi_slopes;
  Operand<float, 3> lse;

  CoreAiCall(Operand<T, 4> q, Operand<T, 4> k, Operand<T, 4> v, Operand<M, 4> m, Operand<float, 1> s,
             Operand<float, 2> a, Operand<T, 4> o, Operand<float, 3> l)
      : query(heads_first(q, query_rows_first)),
        key(heads_first(k, key_rows_first)),
        value(heads_first(v, value_rows_first)),
        out(heads_first(o, true)),
        mask(m),
        sinks(s),
        alibi_slopes(a),
        lse(l) {}

  FlashAttentionBuffers<T> buffers() thread {
    return {query.data, key.data,          value.data, reinterpret_cast<device const uchar*>(mask.data),
            sinks.data, alibi_slopes.data, out.data,   lse.data};
  }

  // `columns` of out are a threadgroup's, `splits` are the parts that keys come in.
  FlashAttentionParams params(int columns, int splits) thread {
    FlashAttentionParams p;
    for (int i = 0; i < 3; ++i) {
      p.q_stride[i] = query.stride[i], p.k_stride[i] = key.stride[i], p.v_stride[i] = value.stride[i];
      p.out_stride[i] = out.stride[i];
    }
    for (int i = 0; i < 4; ++i) p.mask_stride[i] = mask.stride[i];
    for (int i = 0; i < 2; ++i) p.alibi_stride[i] = alibi_slopes.stride[i];
    p.sinks_stride = sinks.stride[0];
    p.q_len = query.size[2], p.kv_len = key.size[2];
    p.diagonal = upper_left ? 0 : p.kv_len - p.q_len;
    p.left = window_left, p.right = window_right;
    p.heads = int(query.size[1]), p.kv_heads = int(key.size[1]);
    p.head_dim = int(query.size[3]), p.v_head_dim = int(value.size[3]);
    p.v_chunks = (p.v_head_dim + columns - 1) / columns;
    p.softmax_scale = softmax_scale, p.softcap = softcap;
    p.splits = splits;
    p.keys_per_split = 0;
    const KeyRange seen = keys_seen(p, 0, p.q_len - 1);
    p.keys_per_split = metal::max(1L, (seen.last - seen.first + splits - 1) / splits);
    return p;
  }
};

template <typename T, typename M, int HEAD, int VALUE>
struct CoreAiPrefill {
  using Prefill = PrefillSimdgroup<T, 4, prefill_keys<HEAD>(), HEAD, VALUE>;
  struct Memory {
    T keys[Prefill::kKeyTile], values[Prefill::kValueTile];
    bool seen[8];
  };

  static void run(Operand<T, 4> query, Operand<T, 4> key, Operand<T, 4> value, Operand<M, 4> mask,
                  Operand<float, 1> sinks, Operand<float, 2> alibi_slopes, Operand<T, 4> out, Operand<float, 3> lse,
                  threadgroup Memory& memory, ThreadPlace at) {
    CoreAiCall<T, M> call(query, key, value, mask, sinks, alibi_slopes, out, lse);
    const FlashAttentionParams params = call.params(VALUE, 1);
    // The last rows see most of causal.
    run_tile(call, params, memory, at, at.groups.x - 1 - at.group.x);
  }

  static void run_tile(CoreAiCall<T, M> call, ParamsRef params, threadgroup Memory& memory, ThreadPlace at, uint tile) {
    Prefill prefill;
    prefill.run(head_of(call.buffers(), params, at.group.z, at.group.y / params.v_chunks), params, tile,
                at.group.y % params.v_chunks, memory.keys, memory.values, memory.seen, at.simdgroup, at.lane);
  }
};

// SHORT: there may be fewer keys than matmul2d takes; simdgroup_matrix computes then what the same grid was to.
template <typename T, typename M, int VALUE, bool SHORT>
struct CoreAiTensorOps {
  using Tiles = CoreAiPrefill<T, M, 0, VALUE>;
  union Memory {
    T weights[4 * kTensorRows * kTensorKeys];
    typename metal::conditional<SHORT, typename Tiles::Memory, uint>::type tiles;
  };

  static void run(Operand<T, 4> query, Operand<T, 4> key, Operand<T, 4> value, Operand<M, 4> mask,
                  Operand<float, 1> sinks, Operand<float, 2> alibi_slopes, Operand<T, 4> out, Operand<float, 3> lse,
                  threadgroup Memory& memory, ThreadPlace at) {
    CoreAiCall<T, M> call(query, key, value, mask, sinks, alibi_slopes, out, lse);
    const FlashAttentionParams params = call.params(VALUE, 1);
    const long group = at.groups.x - 1 - at.group.x;  // the last rows see most of causal
    if constexpr (SHORT) {
      if (params.kv_len < kTensorKeys) {
        constexpr int kTiles = 4 * kTensorRows / 32;  // of 32 rows each
        for (long tile = group * kTiles; tile < (group + 1) * kTiles && tile * 32 < params.q_len; ++tile)
          Tiles::run_tile(call, params, memory.tiles, at, uint(tile));
        return;
      }
    }
    const long first_row = (group * 4 + at.simdgroup) * kTensorRows;
    if (first_row >= params.q_len) return;
    prefill_tensor_ops<T, VALUE>(head_of(call.buffers(), params, at.group.z, at.group.y / params.v_chunks), params,
                                 first_row, at.group.y % params.v_chunks,
                                 memory.weights + at.simdgroup * kTensorRows * kTensorKeys, at.lane);
  }
};

// All keys of some rows: out and lse.
template <typename T, typename M, int HEAD, int ROWS>
struct CoreAiDecode {
  struct Memory {
    float weighted[Decode<T, 8, HEAD, ROWS>::kMergedFloats], of_simdgroup[2 * ROWS * 8];
  };

  static void run(Operand<T, 4> query, Operand<T, 4> key, Operand<T, 4> value, Operand<M, 4> mask,
                  Operand<float, 1> sinks, Operand<float, 2> alibi_slopes, Operand<T, 4> out, Operand<float, 3> lse,
                  threadgroup Memory& memory, ThreadPlace at) {
    CoreAiCall<T, M> call(query, key, value, mask, sinks, alibi_slopes, out, lse);
    const FlashAttentionParams params = call.params(HEAD, 1);
    Decode<T, 8, HEAD, ROWS> decode;
    decode.run(call.buffers(), nullptr, params, at.group.z, at.group.y % params.kv_heads,
               long(at.group.y / params.kv_heads) * ROWS, 0, memory.weighted, memory.of_simdgroup, at.simdgroup,
               at.lane);
  }
};

// Keys in SPLITS parts: partials [B, H, Lq * SPLITS, Dv + 2], which CoreAiMerge puts together.
template <typename T, typename M, int HEAD, int ROWS, int SPLITS>
struct CoreAiDecodeSplit {
  using Memory = typename CoreAiDecode<T, M, HEAD, ROWS>::Memory;

  static void run(Operand<T, 4> query, Operand<T, 4> key, Operand<T, 4> value, Operand<M, 4> mask,
                  Operand<float, 2> alibi_slopes, Operand<float, 4> partials, threadgroup Memory& memory,
                  ThreadPlace at) {
    CoreAiCall<T, M> call(query, key, value, mask, no_operand<float, 1>(), alibi_slopes, no_operand<T, 4>(),
                          no_operand<float, 3>());
    const FlashAttentionParams params = call.params(HEAD, SPLITS);
    Decode<T, 8, HEAD, ROWS> decode;
    decode.run(call.buffers(), partials.data, params, at.group.z, at.group.y % params.kv_heads,
               long(at.group.y / params.kv_heads) * ROWS, int(at.group.x), memory.weighted, memory.of_simdgroup,
               at.simdgroup, at.lane);
  }
};

template <typename T, int SPLITS>
struct CoreAiMerge {
  using Memory = NoMemory;

  static void run(Operand<float, 4> partials, Operand<float, 1> sinks, Operand<T, 4> out, Operand<float, 3> lse,
                  threadgroup Memory&, ThreadPlace at) {
    FlashAttentionParams params;
    params.splits = SPLITS, params.v_head_dim = int(out.size[3]);
    const long head = at.group.y, row = (at.group.z * out.size[2] + head) * out.size[1] + at.group.x;
    device T* to = out.data + at.group.z * out.stride[0] + at.group.x * out.stride[1] + head * out.stride[2];
    merge_splits(partials.data, params, row, has_sinks ? sinks.data[head * sinks.stride[0]] : -INFINITY, to,
                 lse.data + row, at.lane);
  }
};
