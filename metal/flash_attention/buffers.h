// The buffers that every kernel of flash_attention has. Which of them are there, has_mask and its like say: constants of
// whoever includes this (pipeline.h).
#pragma once

#include "flash_attention/params.h"

template <typename T>
struct FlashAttentionBuffers {
  device const T *query, *key, *value;
  device const uchar* mask;  // of mask_type
  device const float *sinks, *alibi_slopes;
  device T* out;
  device float* lse;  // [B, H, Lq], dense
};

// The part of them that one head of one batch element reads and writes.
template <typename T>
struct Head {
  device const T *query, *key, *value;
  device const uchar* mask;
  long mask_at;  // in elements
  float slope, sink;
  device T* out;
  device float* lse;
};

template <typename T>
inline Head<T> head_of(FlashAttentionBuffers<T> b, ParamsRef p, long batch, long head) {
  const long kv_head = head / (p.heads / p.kv_heads);
  Head<T> h;
  h.query = b.query + batch * p.q_stride[0] + head * p.q_stride[1];
  h.key = b.key + batch * p.k_stride[0] + kv_head * p.k_stride[1];
  h.value = b.value + batch * p.v_stride[0] + kv_head * p.v_stride[1];
  h.mask = b.mask;
  h.mask_at = batch * p.mask_stride[0] + head * p.mask_stride[1];
  h.slope = has_alibi ? b.alibi_slopes[batch * p.alibi_stride[0] + head * p.alibi_stride[1]] : 0.0f;
  h.sink = has_sinks ? b.sinks[head * p.sinks_stride] : -INFINITY;
  h.out = b.out + batch * p.out_stride[0] + head * p.out_stride[1];
  h.lse = b.lse + (batch * p.heads + head) * p.q_len;
  return h;
}
