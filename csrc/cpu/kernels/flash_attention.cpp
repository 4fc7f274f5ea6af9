#include "cpu/kernels/flash_attention.h"

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace mtl4::cpu::MTL4_ISA {
namespace {

using torch::headeronly::ScalarType;

float load_mask(const FlashAttentionProblem& p, const void* mask, int64_t i) {
  if (p.mask_kind == MaskKind::boolean) return static_cast<const bool*>(mask)[i] ? 0.0f : -INFINITY;
  if (p.mask_dtype == ScalarType::Float) return static_cast<const float*>(mask)[i];
  if (p.mask_dtype == ScalarType::Half) return static_cast<const c10::Half*>(mask)[i];
  return static_cast<const c10::BFloat16*>(mask)[i];
}

template <typename T>
void row(const FlashAttentionProblem& p, const FlashAttentionPointers& ptr, int64_t b, int64_t h, int64_t i,
         std::vector<float>& logits, std::vector<float>& acc) {
  const int64_t hk = h / (p.heads / p.kv_heads);
  const T* q = static_cast<const T*>(ptr.query) + b * p.q_stride[0] + h * p.q_stride[1] + i * p.q_stride[2];
  const T* k = static_cast<const T*>(ptr.key) + b * p.k_stride[0] + hk * p.k_stride[1];
  const T* v = static_cast<const T*>(ptr.value) + b * p.v_stride[0] + hk * p.v_stride[1];
  T* out = static_cast<T*>(ptr.out) + b * p.out_stride[0] + h * p.out_stride[1] + i * p.out_stride[2];
  const int64_t mask_at = b * p.mask_stride[0] + h * p.mask_stride[1] + i * p.mask_stride[2];
  const int64_t centre = i + p.diagonal;
  int64_t first = 0, last = p.kv_len - 1;
  if (p.window_left >= 0) first = std::max(first, centre - p.window_left);
  if (p.window_right >= 0) last = std::min(last, centre + p.window_right);
  if (p.causal) last = std::min(last, centre);

  float top = -INFINITY;
  for (int64_t j = first; j <= last; ++j) {
    float s = 0;
    for (int64_t d = 0; d < p.head_dim; ++d)
      s += static_cast<float>(q[d * p.q_stride[3]]) * static_cast<float>(k[j * p.k_stride[2] + d * p.k_stride[3]]);
    s *= p.softmax_scale;
    if (p.softcap > 0) s = p.softcap * std::tanh(s / p.softcap);
    if (ptr.alibi_slopes)
      s -= ptr.alibi_slopes[b * p.alibi_stride[0] + h * p.alibi_stride[1]] * std::abs(static_cast<float>(centre - j));
    if (ptr.mask) {
      const float bias = load_mask(p, ptr.mask, mask_at + j * p.mask_stride[3]);
      s = bias == -INFINITY ? -INFINITY : s + bias;
    }
    logits[j] = s;
    top = std::isnan(s) ? s : std::max(top, s);
  }
  float sum = 0;
  if (ptr.sinks) {
    const float sink = ptr.sinks[h * p.sinks_stride];
    top = std::max(top, sink);
    if (sink > -INFINITY) sum = std::exp(sink - top);
  }
  std::fill(acc.begin(), acc.end(), 0.0f);
  for (int64_t j = first; j <= last; ++j) {
    if (logits[j] == -INFINITY) continue;
    const float w = std::exp(logits[j] - top);
    sum += w;
    for (int64_t d = 0; d < p.v_head_dim; ++d) acc[d] += w * static_cast<float>(v[j * p.v_stride[2] + d * p.v_stride[3]]);
  }
  for (int64_t d = 0; d < p.v_head_dim; ++d) out[d * p.out_stride[3]] = sum == 0 ? 0.0f : acc[d] / sum;
  ptr.lse[(b * p.heads + h) * p.q_len + i] = sum == 0 ? -INFINITY : top + std::log(sum);
}

template <typename T>
void run(const FlashAttentionProblem& p, const FlashAttentionPointers& ptr) {
  torch::stable::parallel_for(0, p.batch * p.heads * p.q_len, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> logits(p.kv_len), acc(p.v_head_dim);
    for (int64_t n = begin; n < end; ++n)
      row<T>(p, ptr, n / (p.heads * p.q_len), n / p.q_len % p.heads, n % p.q_len, logits, acc);
  });
}

}  // namespace

void flash_attention(const FlashAttentionProblem& p, const FlashAttentionPointers& ptr) {
  if (p.dtype == ScalarType::Float) return run<float>(p, ptr);
  if (p.dtype == ScalarType::Half) return run<c10::Half>(p, ptr);
  return run<c10::BFloat16>(p, ptr);
}

}  // namespace mtl4::cpu::MTL4_ISA
