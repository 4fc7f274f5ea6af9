// What the host tells the kernels of flash_attention.
#pragma once

#include "common/host_device.h"

// Indices of the function constants.
#define FLASH_ATTENTION_MASK_TYPE 0     // int, one of FlashAttentionMaskType
#define FLASH_ATTENTION_HAS_SINKS 1     // bool
#define FLASH_ATTENTION_HAS_ALIBI 2     // bool
#define FLASH_ATTENTION_HAS_SOFTCAP 3   // bool
#define FLASH_ATTENTION_SPLITS_KEYS 4   // bool, decode: partial results, which flash_attention_merge merges

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
