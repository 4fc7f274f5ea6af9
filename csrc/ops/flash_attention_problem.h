// What flash_attention has to do once its arguments are known to be safe: sizes, strides and choices, no tensors.
#pragma once

#include <torch/headeronly/core/ScalarType.h>

#include <array>
#include <cstdint>

namespace mtl4 {

constexpr int64_t kMaxHeadDim = 576, kMaxLength = int64_t{1} << 40;

enum class MaskKind { none, boolean, additive };

// All strides are in elements and in the order [B, H, L, D]; a stride of 0 broadcasts.
struct FlashAttentionProblem {
  torch::headeronly::ScalarType dtype;
  int64_t batch, heads, kv_heads, q_len, kv_len, head_dim, v_head_dim;
  std::array<int64_t, 4> q_stride, k_stride, v_stride, out_stride;

  MaskKind mask_kind = MaskKind::none;
  torch::headeronly::ScalarType mask_dtype;  // of an additive mask
  std::array<int64_t, 4> mask_stride{};      // [B, H, Lq, Lk]

  // Query i stands at key position i + diagonal. Keys from first_key(i) to last_key(i) are visible before the mask.
  bool causal = false;
  int64_t diagonal = 0;
  int64_t window_left = -1, window_right = -1;  // -1: unbounded

  float softmax_scale = 1;
  float softcap = 0;  // 0: none
  bool has_sinks = false, has_alibi = false;
  int64_t sinks_stride = 0;               // [H], fp32
  std::array<int64_t, 2> alibi_stride{};  // [B, H], fp32
};

}  // namespace mtl4
