// MPS implementation of flash_attention: contract, allocation, plan, run.
#include "ops/flash_attention.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "ops/shape.h"
#include "plan/flash_attention.h"
#include "runtime/run.h"

namespace mtl4::mps {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

std::tuple<Tensor, Tensor> flash_attention(const Tensor& query_, const Tensor& key_, const Tensor& value_,
                                           std::optional<Tensor> attn_mask, std::optional<std::string> causal,
                                           int64_t window_left, int64_t window_right, std::optional<double> scale,
                                           std::optional<double> softcap, std::optional<Tensor> sinks,
                                           std::optional<Tensor> alibi_slopes) {
  const auto problem_of = [&](const Tensor& query, const Tensor& key, const Tensor& value) {
    return check_flash_attention(
        {query, key, value, attn_mask, causal, window_left, window_right, scale, softcap, sinks, alibi_slopes});
  };
  problem_of(query_, key_, value_);
  const Tensor query = rows_dense(query_), key = rows_dense(key_), value = rows_dense(value_);
  const FlashAttentionProblem p = problem_of(query, key, value);
  // Rows of one query position lie together, as the models that reshape the heads away want them.
  Tensor out =
      torch::stable::transpose(torch::stable::new_empty(query, {p.batch, p.q_len, p.heads, p.v_head_dim}), 1, 2);
  Tensor lse = torch::stable::new_empty(query, {p.batch, p.heads, p.q_len}, ScalarType::Float);
  if (lse.numel() > 0)
    runtime::run(plan_flash_attention(p, runtime::device_caps(lse)), {{"query", query},
                                                                      {"key", key},
                                                                      {"value", value},
                                                                      {"attn_mask", attn_mask},
                                                                      {"sinks", sinks},
                                                                      {"alibi_slopes", alibi_slopes},
                                                                      {"out", out},
                                                                      {"lse", lse}});
  return {out, lse};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(torch_mtl4, MPS, m) { m.impl("flash_attention", TORCH_BOX(&flash_attention)); }

}  // namespace mtl4::mps
