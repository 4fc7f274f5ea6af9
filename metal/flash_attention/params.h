// What the host tells the kernels of flash_attention.
#pragma once

#include "common/host_device.h"

// Indices of the function constants. Each that decides whether a buffer is there is one of its own: whether a value that
// is derived from others may do so, is not documented.
#define FLASH_ATTENTION_HAS_MASK 0      // bool
#define FLASH_ATTENTION_MASK_TYPE 1     // int, one of FlashAttentionMaskType
#define FLASH_ATTENTION_HAS_SINKS 2     // bool
#define FLASH_ATTENTION_HAS_ALIBI 3     // bool
#define FLASH_ATTENTION_HAS_SOFTCAP 4   // bool
#define FLASH_ATTENTION_SPLITS_KEYS 5   // bool, decode: gives partial results, which flash_attention_merge merges,
#define FLASH_ATTENTION_GIVES_RESULT 6  // bool, and the other way round: out and lse
// bool, tensor_ops: weights go from one product to the next by way of threadgroup memory
#define FLASH_ATTENTION_WEIGHTS_IN_MEMORY 7

enum FlashAttentionMaskType { kMaskNone = 0, kMaskBool = 1, kMaskFloat = 2, kMaskHalf = 3, kMaskBfloat = 4 };

// Strides are in elements, in the order B, H, L; the last dimension of query, key, value and out is dense.
struct FlashAttentionParams {
  int64_t q_stride[3], k_stride[3], v_stride[3], out_stride[3];
  int64_t mask_stride[4];  // B, H, Lq, Lk
  int64_t alibi_stride[2], sinks_stride;
  int64_t q_len, kv_len;
  // Query i stands at key i + diagonal, and sees the keys from `left` before it to `right` after it.
  int64_t diagonal, left, right;
  int64_t keys_per_split;
  int32_t splits;
  int32_t heads, kv_heads, head_dim, v_head_dim;
  int32_t v_chunks;  // prefill: the columns of out are cut into so many parts, each for a threadgroup of its own
  float softmax_scale, softcap;
};
