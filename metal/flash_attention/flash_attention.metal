#include <metal_stdlib>
using namespace metal;

#include "flash_attention/pipeline.h"

// One text for both languages: what needs MSL 4.0 is compiled where the host asks for it, and nothing else then.
#include "common/online_softmax.h"
#include "flash_attention/logits.h"

#if defined(__HAVE_TENSOR__)
#include "flash_attention/prefill_tensor_ops.h"

template <typename T, int SIMDGROUPS, int VALUE>
[[kernel, max_total_threads_per_threadgroup(32 * SIMDGROUPS)]] void flash_attention_tensor_ops(
    device const T* query [[buffer(0)]], device const T* key [[buffer(1)]], device const T* value [[buffer(2)]],
    device const uchar* mask [[buffer(3), function_constant(has_mask)]],
    device const float* sinks [[buffer(4), function_constant(has_sinks)]],
    device const float* alibi_slopes [[buffer(5), function_constant(has_alibi)]], device T* out [[buffer(6)]],
    device float* lse [[buffer(7)]], constant FlashAttentionParams& params [[buffer(9)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup T memory[SIMDGROUPS * kTensorRows * kTensorKeys];
  const FlashAttentionBuffers<T> buffers{query, key, value, mask, sinks, alibi_slopes, out, lse};
  const long head = group.y / params.v_chunks, tile = groups.x - 1 - group.x;  // the last rows see most of causal
  const long first_row = (tile * SIMDGROUPS + simdgroup) * kTensorRows;
  if (first_row >= params.q_len) return;
  prefill_tensor_ops<T, VALUE>(head_of(buffers, params, group.z, head), params, first_row, group.y % params.v_chunks,
                               memory + simdgroup * kTensorRows * kTensorKeys, lane);
}

#define TENSOR_OPS(T, VALUE)                                                               \
  template [[host_name("flash_attention_tensor_ops_" #T "_" #VALUE)]] [[kernel]] decltype( \
      flash_attention_tensor_ops<T, 4, VALUE>) flash_attention_tensor_ops<T, 4, VALUE>;
#define KERNELS(T)   \
  TENSOR_OPS(T, 64)  \
  TENSOR_OPS(T, 96)  \
  TENSOR_OPS(T, 128)
KERNELS(float)
KERNELS(half)
KERNELS(bfloat)

#else
#include "flash_attention/decode.h"
#include "flash_attention/prefill_simdgroup.h"

template <typename T, int SIMDGROUPS, int HEAD, int VALUE>
[[kernel, max_total_threads_per_threadgroup(32 * SIMDGROUPS)]] void flash_attention_prefill(
    device const T* query [[buffer(0)]], device const T* key [[buffer(1)]], device const T* value [[buffer(2)]],
    device const uchar* mask [[buffer(3), function_constant(has_mask)]],
    device const float* sinks [[buffer(4), function_constant(has_sinks)]],
    device const float* alibi_slopes [[buffer(5), function_constant(has_alibi)]], device T* out [[buffer(6)]],
    device float* lse [[buffer(7)]], constant FlashAttentionParams& params [[buffer(9)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Prefill = PrefillSimdgroup<T, SIMDGROUPS, prefill_keys<HEAD>(), HEAD, VALUE>;
  threadgroup T keys[Prefill::kKeyTile], values[Prefill::kValueTile];
  threadgroup bool seen[2 * SIMDGROUPS];
  const FlashAttentionBuffers<T> buffers{query, key, value, mask, sinks, alibi_slopes, out, lse};
  const long head = group.y / params.v_chunks;
  const uint tile = groups.x - 1 - group.x;  // the last rows see most of causal
  Prefill prefill;
  prefill.run(head_of(buffers, params, group.z, head), params, tile, group.y % params.v_chunks, keys, values, seen,
              simdgroup, lane);
}

template <typename T, int SIMDGROUPS, int HEAD, int ROWS>
[[kernel, max_total_threads_per_threadgroup(32 * SIMDGROUPS)]] void flash_attention_decode(
    device const T* query [[buffer(0)]], device const T* key [[buffer(1)]], device const T* value [[buffer(2)]],
    device const uchar* mask [[buffer(3), function_constant(has_mask)]],
    device const float* sinks [[buffer(4), function_constant(has_sinks)]],
    device const float* alibi_slopes [[buffer(5), function_constant(has_alibi)]],
    device T* out [[buffer(6), function_constant(gives_result)]],
    device float* lse [[buffer(7), function_constant(gives_result)]],
    device float* partials [[buffer(8), function_constant(splits_keys)]],
    constant FlashAttentionParams& params [[buffer(9)]], uint3 group [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Decoding = Decode<T, SIMDGROUPS, HEAD, ROWS>;
  threadgroup float weighted[Decoding::kMergedFloats], of_simdgroup[2 * ROWS * SIMDGROUPS];
  const FlashAttentionBuffers<T> buffers{query, key, value, mask, sinks, alibi_slopes, out, lse};
  Decoding decode;
  decode.run(buffers, partials, params, group.z, group.y % params.kv_heads, long(group.y / params.kv_heads) * ROWS,
             int(group.x), weighted, of_simdgroup, simdgroup, lane);
}

template <typename T>
[[kernel]] void flash_attention_merge(device const float* sinks [[buffer(4), function_constant(has_sinks)]],
                                      device T* out [[buffer(6)]], device float* lse [[buffer(7)]],
                                      device const float* partials [[buffer(8)]],
                                      constant FlashAttentionParams& params [[buffer(9)]],
                                      uint3 group [[threadgroup_position_in_grid]],
                                      uint lane [[thread_index_in_simdgroup]]) {
  const long head = group.y, row = (long(group.z) * params.heads + head) * params.q_len + group.x;
  device T* to = out + group.z * params.out_stride[0] + head * params.out_stride[1] + group.x * params.out_stride[2];
  const float sink = has_sinks ? sinks[head * params.sinks_stride] : -INFINITY;
  merge_splits(partials, params, row, sink, to, lse + row, lane);
}

#define PREFILL(T, HEAD, VALUE)                                                                   \
  template [[host_name("flash_attention_prefill_" #T "_" #HEAD "_" #VALUE)]] [[kernel]] decltype( \
      flash_attention_prefill<T, 4, HEAD, VALUE>) flash_attention_prefill<T, 4, HEAD, VALUE>;
#define DECODE(T, HEAD, ROWS)                                                                    \
  template [[host_name("flash_attention_decode_" #T "_" #HEAD "_" #ROWS)]] [[kernel]] decltype( \
      flash_attention_decode<T, 8, HEAD, ROWS>) flash_attention_decode<T, 8, HEAD, ROWS>;
#define KERNELS(T)                                                                            \
  PREFILL(T, 64, 64)                                                                          \
  PREFILL(T, 96, 96)                                                                          \
  PREFILL(T, 128, 128)                                                                        \
  PREFILL(T, 0, 128)                                                                          \
  PREFILL(T, 0, 256)                                                                          \
  DECODE(T, 64, 1)                                                                            \
  DECODE(T, 64, 4)                                                                            \
  DECODE(T, 64, 8)                                                                            \
  DECODE(T, 128, 1)                                                                           \
  DECODE(T, 128, 4)                                                                           \
  DECODE(T, 128, 8)                                                                           \
  DECODE(T, 256, 1)                                                                           \
  DECODE(T, 256, 4)                                                                           \
  DECODE(T, 576, 1)                                                                           \
  DECODE(T, 576, 2)                                                                           \
  template [[host_name("flash_attention_merge_" #T)]] [[kernel]] decltype(flash_attention_merge<T>) \
      flash_attention_merge<T>;
KERNELS(float)
KERNELS(half)
KERNELS(bfloat)
#endif
