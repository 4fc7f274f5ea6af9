// CPU implementation of flash_attention: contract, allocation, the cut into tasks, choice of instruction set.
#include "ops/flash_attention.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <atomic>

#include "cpu/isa.h"
#include "cpu/kernels/dispatch.h"
#include "cpu/kernels/flash_attention.h"

namespace mtl4::cpu {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Enough tasks for the cores of any CPU in sight. Not the number of threads: results must not depend on it.
constexpr int64_t kEnoughTasks = 32;
// A row block shorter than this would not repay the packing of its keys and values.
constexpr int64_t kMinRowsPerTask = 64;
// Fewer rows than these would not repay any packing.
constexpr int64_t kMaxRowsUnpacked = 16;
constexpr int64_t kMinKeysPerSplit = 2 * kBK;

FlashAttentionSchedule schedule(const FlashAttentionProblem& p) {
  FlashAttentionSchedule s;
  s.fold = p.q_len < kMinRowsPerTask ? p.heads / p.kv_heads : 1;
  s.groups = p.batch * p.heads / s.fold;
  s.rows = s.fold * p.q_len;
  s.unpacked = s.rows <= kMaxRowsUnpacked;
  s.rows_per_task = std::min(kMaxRowsPerTask, round_up(s.rows, kBQ));
  while (s.groups * ceil_div(s.rows, s.rows_per_task) < kEnoughTasks && s.rows_per_task > kMinRowsPerTask)
    s.rows_per_task = round_up(s.rows_per_task / 2, kBQ);
  s.row_blocks = ceil_div(s.rows, s.rows_per_task);
  const int64_t wanted_splits = ceil_div(kEnoughTasks, s.groups * s.row_blocks);
  s.keys_per_split = std::max(kMinKeysPerSplit, round_up(ceil_div(p.kv_len, wanted_splits), kBK));
  s.splits = std::max<int64_t>(1, ceil_div(p.kv_len, s.keys_per_split));
  s.tasks = s.groups * s.splits * s.row_blocks;
  s.partial_row = round_up(p.v_head_dim, 32) + 32;
  return s;
}

int64_t scratch_floats(const FlashAttentionProblem& p, const FlashAttentionSchedule& s) {
  int64_t n = 0;
  MTL4_DISPATCH_ISA(flash_attention_scratch, p, s, &n);
  return n;
}

void run(const FlashAttentionProblem& p, const FlashAttentionPointers& ptr, const Tensor& like) {
  const FlashAttentionSchedule s = schedule(p);
  const int64_t workers = std::min<int64_t>(torch::stable::get_num_threads(), s.tasks);
  const int64_t per_worker = round_up(scratch_floats(p, s), 16);
  const int64_t partial_floats = s.splits > 1 ? s.groups * s.rows * s.splits * s.partial_row : 0;
  const Tensor memory = torch::stable::new_empty(like, {workers * per_worker + partial_floats}, ScalarType::Float);
  float* scratch = static_cast<float*>(memory.mutable_data_ptr());
  float* partials = scratch + workers * per_worker;

  // Tasks differ in length, so each worker takes the next one when it is done.
  std::atomic<int64_t> next{0};
  torch::stable::parallel_for(0, workers, 1, [&](int64_t begin, int64_t) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < s.tasks;)
      MTL4_DISPATCH_ISA(flash_attention, p, ptr, s, task, scratch + begin * per_worker, partials);
  });
  if (s.splits > 1)
    torch::stable::parallel_for(0, s.groups * s.rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) MTL4_DISPATCH_ISA(flash_attention_merge, p, ptr, s, row, partials);
    });
}

std::tuple<Tensor, Tensor> flash_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                           std::optional<Tensor> attn_mask, std::optional<std::string> causal,
                                           int64_t window_left, int64_t window_right, std::optional<double> scale,
                                           std::optional<double> softcap, std::optional<Tensor> sinks,
                                           std::optional<Tensor> alibi_slopes) {
  FlashAttentionProblem p = check_flash_attention(
      {query, key, value, attn_mask, causal, window_left, window_right, scale, softcap, sinks, alibi_slopes});
  // Rows of one query position lie together, as the models that reshape the heads away want them.
  Tensor out =
      torch::stable::transpose(torch::stable::new_empty(query, {p.batch, p.q_len, p.heads, p.v_head_dim}), 1, 2);
  Tensor lse = torch::stable::new_empty(query, {p.batch, p.heads, p.q_len}, ScalarType::Float);
  if (p.batch == 0 || p.heads == 0 || p.q_len == 0) return {out, lse};
  p.out_stride = {out.stride(0), out.stride(1), out.stride(2), 1};
  const FlashAttentionPointers pointers{
      query.const_data_ptr(),
      key.const_data_ptr(),
      value.const_data_ptr(),
      attn_mask ? attn_mask->const_data_ptr() : nullptr,
      sinks ? static_cast<const float*>(sinks->const_data_ptr()) : nullptr,
      alibi_slopes ? static_cast<const float*>(alibi_slopes->const_data_ptr()) : nullptr,
      out.mutable_data_ptr(),
      static_cast<float*>(lse.mutable_data_ptr())};
  run(p, pointers, query);
  return {out, lse};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(torch_mtl4, CPU, m) { m.impl("flash_attention", TORCH_BOX(&flash_attention)); }

}  // namespace mtl4::cpu
