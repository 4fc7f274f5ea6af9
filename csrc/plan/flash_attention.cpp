#include "plan/flash_attention.h"

#include <algorithm>
#include <stdexcept>

#include "flash_attention/params.h"
#include "plan/words.h"

namespace mtl4 {
namespace {

using torch::headeronly::ScalarType;

// A row of a table of prefill kernels, which are tried in order.
struct PrefillTile {
  int64_t max_head_dim, max_v_head_dim;
  int64_t head, value;  // as the kernel's name has them; head 0: any
};

// Queries of a threadgroup: 8 or 16 for each of 4 simdgroups.
constexpr int64_t kSimdgroupRows = 32, kTensorOpsRows = 64, kPrefillThreads = 128;

// 32 queries by 32 keys, by 16 from head dim 128 on. Source: the tiles of MLX's steel_attention (2026-08); what is
// beyond its head dims was derived from 32 KiB of threadgroup memory and not measured.
constexpr PrefillTile kSimdgroupTiles[] = {
    {64, 64, 64, 64}, {96, 96, 96, 96}, {128, 128, 128, 128}, {kMaxHeadDim, 128, 0, 128}, {kMaxHeadDim, 256, 0, 256},
};

// 64 queries by 32 keys, in sub-tiles of 32 columns of out. Source: MLX's steel_attention_nax (2026-08), and the shapes
// that every compiler takes of inputs in registers; more than 128 columns of float sums do not fit the registers.
constexpr PrefillTile kTensorOpsTiles[] = {
    {kMaxHeadDim, 64, 0, 64},
    {kMaxHeadDim, 96, 0, 96},
    {kMaxHeadDim, 128, 0, 128},
};
constexpr int64_t kTensorOpsKeys = 32;

// Rows are the queries of all heads that share a key head; a lane holds head / 32 columns of each. Not measured: as
// many rows as leave a lane its registers.
struct DecodeTile {
  int64_t head, rows;
};
constexpr DecodeTile kDecodeTiles[] = {
    {64, 1}, {64, 4}, {64, 8}, {128, 1}, {128, 4}, {128, 8}, {256, 1}, {256, 4}, {576, 1}, {576, 2},
};
constexpr int64_t kDecodeMaxQueries = 8, kDecodeThreads = 256, kMinKeysPerSplit = 256, kMaxSplits = 64;
// Positions within a split are 32-bit numbers.
constexpr int64_t kMaxKeysPerSplit = int64_t{1} << 30;

// Threadgroups that fill the GPU: four of 256 threads for each core.
int64_t enough_groups(const DeviceCaps& caps) { return 4 * caps.cores(); }

int32_t mask_type(const FlashAttentionProblem& p) {
  if (p.mask_kind == MaskKind::none) return kMaskNone;
  if (p.mask_kind == MaskKind::boolean) return kMaskBool;
  return p.mask_dtype == ScalarType::Half ? kMaskHalf : p.mask_dtype == ScalarType::BFloat16 ? kMaskBfloat : kMaskFloat;
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::invalid_argument("flash_attention: expected " + what);
}

FlashAttentionParams params_of(const FlashAttentionProblem& p) {
  constexpr int64_t kUnbounded = 4 * kMaxLength;
  FlashAttentionParams params{};
  for (int i = 0; i < 3; ++i) {
    params.q_stride[i] = p.q_stride[i], params.k_stride[i] = p.k_stride[i], params.v_stride[i] = p.v_stride[i];
  }
  const int64_t out_stride[] = {p.q_len * p.heads * p.v_head_dim, p.v_head_dim, p.heads * p.v_head_dim};
  std::copy(std::begin(out_stride), std::end(out_stride), params.out_stride);
  std::copy(p.mask_stride.begin(), p.mask_stride.end(), params.mask_stride);
  std::copy(p.alibi_stride.begin(), p.alibi_stride.end(), params.alibi_stride);
  params.sinks_stride = p.sinks_stride;
  params.q_len = p.q_len, params.kv_len = p.kv_len, params.diagonal = p.diagonal;
  params.left = p.window_left < 0 ? kUnbounded : p.window_left;
  params.right = p.window_right < 0 ? kUnbounded : p.window_right;
  if (p.causal) params.right = std::min<int64_t>(params.right, 0);
  params.heads = static_cast<int32_t>(p.heads), params.kv_heads = static_cast<int32_t>(p.kv_heads);
  params.head_dim = static_cast<int32_t>(p.head_dim), params.v_head_dim = static_cast<int32_t>(p.v_head_dim);
  params.v_chunks = params.splits = 1;
  params.softmax_scale = p.softmax_scale, params.softcap = p.softcap;
  return params;
}

// A tensor at the index that it has in every kernel, where the call has it.
struct Slot {
  const char* name;
  bool given;
};
std::array<Slot, 9> slots_of(const FlashAttentionProblem& p) {
  return {{{"query", true},
           {"key", true},
           {"value", true},
           {"attn_mask", p.mask_kind != MaskKind::none},
           {"sinks", p.has_sinks},
           {"alibi_slopes", p.has_alibi},
           {"out", true},
           {"lse", true},
           {"partials", true}}};
}
using Buffers = std::vector<std::string>;

std::vector<Argument> arguments_of(const FlashAttentionProblem& p, const Buffers& buffers) {
  const auto slots = slots_of(p);
  std::vector<Argument> arguments;
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i].given && std::find(buffers.begin(), buffers.end(), slots[i].name) != buffers.end())
      arguments.push_back({static_cast<int>(i), slots[i].name});
  return arguments;
}

std::vector<FunctionConstant> constants_of(const FlashAttentionProblem& p, const DeviceCaps& caps,
                                           const std::vector<Argument>& arguments) {
  const auto has = [&](const char* name) {
    return std::any_of(arguments.begin(), arguments.end(), [&](const Argument& a) { return a.name == name; });
  };
  return {{FLASH_ATTENTION_HAS_MASK, "has_mask", true, has("attn_mask")},
          {FLASH_ATTENTION_MASK_TYPE, "mask_type", false, has("attn_mask") ? mask_type(p) : kMaskNone},
          {FLASH_ATTENTION_HAS_SINKS, "has_sinks", true, has("sinks")},
          {FLASH_ATTENTION_HAS_ALIBI, "has_alibi", true, has("alibi_slopes")},
          {FLASH_ATTENTION_HAS_SOFTCAP, "has_softcap", true, has("query") && p.softcap > 0},
          {FLASH_ATTENTION_SPLITS_KEYS, "splits_keys", true, !has("out")},
          {FLASH_ATTENTION_GIVES_RESULT, "gives_result", true, has("out")},
          {FLASH_ATTENTION_WEIGHTS_IN_MEMORY, "weights_in_memory", true,
           !caps.works("flash_attention_left_input", type_name(p.dtype))}};
}
constexpr int kParamsIndex = 9;

Pass pass_of(std::string kernel, const FlashAttentionProblem& p, const DeviceCaps& caps, const Buffers& buffers,
             const FlashAttentionParams& params, std::array<int64_t, 3> groups, int64_t threads) {
  for (const int64_t n : groups)
    expect(n <= kMostGroups, "a grid of at most " + std::to_string(kMostGroups) +
                                 " threadgroups in each dimension, got " + std::to_string(n));
  const std::vector<Argument> arguments = arguments_of(p, buffers);
  return {.kernel = std::move(kernel),
          .constants = constants_of(p, caps, arguments),
          .arguments = arguments,
          .params_index = kParamsIndex,
          .params = bytes_of(params),
          .groups = groups,
          .threads = {threads, 1, 1}};
}

// matmul2d takes strides of 32 bits and tiles of at most 2 GiB, and whole tiles of keys.
bool fits_tensor_ops(const FlashAttentionProblem& p) {
  constexpr int64_t kMaxStride = int64_t{1} << 24;
  const auto fits = [](int64_t length, int64_t stride) { return length == 1 || (stride > 0 && stride <= kMaxStride); };
  return p.kv_len >= kTensorOpsKeys && fits(p.q_len, p.q_stride[2]) && fits(p.kv_len, p.k_stride[2]) &&
         fits(p.kv_len, p.v_stride[2]);
}

KernelPlan plan_prefill(const FlashAttentionProblem& p, const DeviceCaps& caps) {
  const std::string type = type_name(p.dtype);
  const bool simdgroup = caps.works("flash_attention_prefill", type);
  const bool tensor_ops =
      caps.tensor_ops && (caps.matrix_units() || !simdgroup) && fits_tensor_ops(p) &&
      (caps.works("flash_attention_left_input", type) || caps.works("flash_attention_weights_in_memory", type));
  if (!tensor_ops) caps.need("flash_attention", "flash_attention_prefill", type);
  const std::vector<PrefillTile> tiles =
      tensor_ops ? std::vector<PrefillTile>(std::begin(kTensorOpsTiles), std::end(kTensorOpsTiles))
                 : std::vector<PrefillTile>(std::begin(kSimdgroupTiles), std::end(kSimdgroupTiles));
  PrefillTile tile = tiles.back();
  for (auto it = tiles.rbegin(); it != tiles.rend(); ++it)
    if (p.head_dim <= it->max_head_dim && p.v_head_dim <= it->max_v_head_dim) tile = *it;
  FlashAttentionParams params = params_of(p);
  params.v_chunks = static_cast<int32_t>(ceil_div(p.v_head_dim, tile.value));
  const std::string kernel = tensor_ops
                                 ? "flash_attention_tensor_ops_" + type_name(p.dtype)
                                 : "flash_attention_prefill_" + type_name(p.dtype) + "_" + std::to_string(tile.head);
  KernelPlan plan{"flash_attention", tensor_ops ? Language::metal4_0 : Language::metal3_1, {}, {}};
  plan.passes.push_back(
      pass_of(kernel + "_" + std::to_string(tile.value), p, caps,
              {"query", "key", "value", "attn_mask", "sinks", "alibi_slopes", "out", "lse"}, params,
              {ceil_div(p.q_len, tensor_ops ? kTensorOpsRows : kSimdgroupRows), p.heads * params.v_chunks, p.batch},
              kPrefillThreads));
  return plan;
}

KernelPlan plan_decode(const FlashAttentionProblem& p, const DeviceCaps& caps) {
  const int64_t rows = p.heads / p.kv_heads * p.q_len, head = std::max(p.head_dim, p.v_head_dim);
  DecodeTile tile{};
  for (const DecodeTile& t : kDecodeTiles)
    if (head <= t.head && (tile.head == 0 || (t.head == tile.head && tile.rows < rows))) tile = t;

  FlashAttentionParams params = params_of(p);
  const int64_t row_blocks = ceil_div(rows, tile.rows), groups = row_blocks * p.kv_heads * p.batch;
  const int64_t first = std::max<int64_t>(0, p.diagonal - params.left);
  const int64_t last = std::min(p.kv_len, p.q_len + p.diagonal + params.right);
  const int64_t keys = std::max<int64_t>(0, last - first);
  const int64_t wanted = std::min(kMaxSplits, ceil_div(enough_groups(caps), groups));
  params.keys_per_split = std::clamp(ceil_div(keys, wanted), kMinKeysPerSplit, kMaxKeysPerSplit);
  const int64_t splits = std::max<int64_t>(1, ceil_div(keys, params.keys_per_split));
  params.splits = static_cast<int32_t>(splits);

  KernelPlan plan{"flash_attention", Language::metal3_1, {}, {}};
  const std::string kernel = "flash_attention_decode_" + type_name(p.dtype) + "_" + std::to_string(tile.head) + "_" +
                             std::to_string(tile.rows);
  Buffers buffers = {"query", "key", "value", "attn_mask", "alibi_slopes"};
  const Buffers results = {"sinks", "out", "lse"};
  if (splits == 1) {
    buffers.insert(buffers.end(), results.begin(), results.end());
  } else {
    buffers.push_back("partials");
    plan.scratch.push_back({"partials", p.batch * p.heads * p.q_len * splits * (p.v_head_dim + 2) * 4});
  }
  plan.passes.push_back(
      pass_of(kernel, p, caps, buffers, params, {splits, row_blocks * p.kv_heads, p.batch}, kDecodeThreads));
  if (splits > 1)
    plan.passes.push_back(pass_of("flash_attention_merge_" + type_name(p.dtype), p, caps,
                                  {"sinks", "out", "lse", "partials"}, params, {p.q_len, p.heads, p.batch}, 32));
  return plan;
}

}  // namespace

KernelPlan plan_flash_attention(const FlashAttentionProblem& p, const DeviceCaps& caps) {
  expect(p.q_stride[3] == 1 && p.k_stride[3] == 1 && p.v_stride[3] == 1,
         "query, key and value with a last stride of 1, got " + std::to_string(p.q_stride[3]) + ", " +
             std::to_string(p.k_stride[3]) + " and " + std::to_string(p.v_stride[3]));
  expect(p.mask_kind != MaskKind::additive || p.mask_dtype != ScalarType::Double,
         "attn_mask of a dtype that Metal has, got float64");
  expect(p.batch > 0 && p.heads > 0 && p.q_len > 0, "something to compute, got an empty query");
  return p.q_len <= kDecodeMaxQueries ? plan_decode(p, caps) : plan_prefill(p, caps);
}

}  // namespace mtl4
