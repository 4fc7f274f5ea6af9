// The memory contract of flash_attention: a Problem that is safe to execute, or an error that names the argument.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <string>

#include "ops/flash_attention_problem.h"

namespace mtl4 {

struct FlashAttentionArgs {
  const torch::stable::Tensor &query, &key, &value;
  const std::optional<torch::stable::Tensor>& attn_mask;
  const std::optional<std::string>& causal;
  int64_t window_left, window_right;
  std::optional<double> scale, softcap;
  const std::optional<torch::stable::Tensor>&sinks, &alibi_slopes;
};

// Throws (std::runtime_error through STD_TORCH_CHECK) when anything would be read or written outside its tensor.
// out_stride is left to the caller, who allocates.
FlashAttentionProblem check_flash_attention(const FlashAttentionArgs& args);

}  // namespace mtl4
