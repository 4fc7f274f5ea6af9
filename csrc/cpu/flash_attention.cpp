// CPU implementation of flash_attention: contract, allocation, choice of instruction set.
#include "ops/flash_attention.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "cpu/isa.h"
#include "cpu/kernels/dispatch.h"
#include "cpu/kernels/flash_attention.h"

namespace mtl4::cpu {
namespace {

using torch::stable::Tensor;

std::tuple<Tensor, Tensor> flash_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                           std::optional<Tensor> attn_mask, std::optional<std::string> causal,
                                           int64_t window_left, int64_t window_right, std::optional<double> scale,
                                           std::optional<double> softcap, std::optional<Tensor> sinks,
                                           std::optional<Tensor> alibi_slopes) {
  FlashAttentionProblem p = check_flash_attention(
      {query, key, value, attn_mask, causal, window_left, window_right, scale, softcap, sinks, alibi_slopes});
  // Rows of one query position lie together, as the models that reshape the heads away want them.
  Tensor out = torch::stable::transpose(
      torch::stable::new_empty(query, {p.batch, p.q_len, p.heads, p.v_head_dim}), 1, 2);
  Tensor lse = torch::stable::new_empty(query, {p.batch, p.heads, p.q_len}, torch::headeronly::ScalarType::Float);
  if (p.batch * p.heads * p.q_len == 0) return {out, lse};
  p.out_stride = {out.stride(0), out.stride(1), out.stride(2), out.stride(3)};
  const FlashAttentionPointers pointers{query.const_data_ptr(),
                                        key.const_data_ptr(),
                                        value.const_data_ptr(),
                                        attn_mask ? attn_mask->const_data_ptr() : nullptr,
                                        sinks ? static_cast<const float*>(sinks->const_data_ptr()) : nullptr,
                                        alibi_slopes ? static_cast<const float*>(alibi_slopes->const_data_ptr()) : nullptr,
                                        out.mutable_data_ptr(),
                                        static_cast<float*>(lse.mutable_data_ptr())};
  MTL4_DISPATCH_ISA(flash_attention, p, pointers);
  return {out, lse};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(torch_mtl4, CPU, m) { m.impl("flash_attention", TORCH_BOX(&flash_attention)); }

}  // namespace mtl4::cpu
