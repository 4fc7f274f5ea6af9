#include "flash_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "check.h"

namespace mtl4 {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
constexpr const char* kOp = "flash_attention";

#define CHECK(cond, argument, expected, got) MTL4_CHECK(kOp, cond, argument, expected, got)

// Torch leaves the strides of dimensions that hold at most one element, and of empty tensors, to chance.
int64_t stride_of(const Tensor& t, int64_t dim) { return t.size(dim) > 1 && t.numel() > 0 ? t.stride(dim) : 0; }

std::array<int64_t, 4> strides4(const Tensor& t) {
  return {stride_of(t, 0), stride_of(t, 1), stride_of(t, 2), t.size(3) > 1 ? t.stride(3) : 1};
}

void check_input(const Tensor& t, const char* name, const Tensor& query) {
  const ScalarType dtype = query.scalar_type();
  CHECK(t.dim() == 4, name, "with 4 dimensions", shape_string(t));
  CHECK(t.scalar_type() == dtype, name, "of query's dtype " + dtype_string(dtype), dtype_string(t.scalar_type()));
  check_same_device(kOp, t, name, query, "query");
  check_storage(kOp, t, name);
}

// Sinks and slopes.
void check_head_values(const Tensor& t, const char* name, const Tensor& query) {
  check_same_device(kOp, t, name, query, "query");
  CHECK(t.scalar_type() == ScalarType::Float, name, "of dtype float32", dtype_string(t.scalar_type()));
  check_storage(kOp, t, name);
}

// A size-1 dimension broadcasts; so do missing leading ones.
std::array<int64_t, 4> broadcast_strides(const Tensor& t, std::array<int64_t, 4> sizes, const char* name) {
  std::array<int64_t, 4> strides{};
  CHECK(t.dim() <= 4, name, "with at most 4 dimensions", shape_string(t));
  for (int64_t i = 0; i < t.dim(); ++i) {
    const int64_t axis = 4 - t.dim() + i;
    CHECK(t.size(i) == sizes[axis] || t.size(i) == 1, name,
          "broadcastable to [" + std::to_string(sizes[0]) + ", " + std::to_string(sizes[1]) + ", " +
              std::to_string(sizes[2]) + ", " + std::to_string(sizes[3]) + "]",
          shape_string(t));
    strides[axis] = stride_of(t, i);
  }
  return strides;
}

}  // namespace

FlashAttentionProblem check_flash_attention(const FlashAttentionArgs& a) {
  FlashAttentionProblem p;
  p.dtype = a.query.scalar_type();
  CHECK(is_float(p.dtype), "query", "of dtype float32, bfloat16 or float16", dtype_string(p.dtype));
  check_device(kOp, a.query, "query");
  check_input(a.query, "query", a.query);
  check_input(a.key, "key", a.query);
  check_input(a.value, "value", a.query);
  p.batch = a.query.size(0), p.heads = a.query.size(1), p.q_len = a.query.size(2), p.head_dim = a.query.size(3);
  p.kv_heads = a.key.size(1), p.kv_len = a.key.size(2), p.v_head_dim = a.value.size(3);
  CHECK(a.key.size(0) == p.batch && a.key.size(3) == p.head_dim, "key", "[B, Hkv, Lk, D]", shape_string(a.key));
  CHECK(a.value.size(0) == p.batch && a.value.size(1) == p.kv_heads && a.value.size(2) == p.kv_len, "value",
        "[B, Hkv, Lk, Dv]", shape_string(a.value));
  CHECK(p.kv_heads > 0 ? p.heads % p.kv_heads == 0 : p.heads == 0, "query heads", "a multiple of key heads",
        std::to_string(p.heads) + " and " + std::to_string(p.kv_heads));
  for (int64_t dim : {p.head_dim, p.v_head_dim})
    CHECK(dim >= 1 && dim <= kMaxHeadDim, "head dim", "from 1 to " + std::to_string(kMaxHeadDim), std::to_string(dim));
  for (int64_t length : {p.q_len, p.kv_len})
    CHECK(length <= kMaxLength, "length", "of at most " + std::to_string(kMaxLength), std::to_string(length));
  p.q_stride = strides4(a.query), p.k_stride = strides4(a.key), p.v_stride = strides4(a.value);

  if (a.attn_mask) {
    const Tensor& mask = *a.attn_mask;
    check_same_device(kOp, mask, "attn_mask", a.query, "query");
    check_storage(kOp, mask, "attn_mask");
    p.mask_dtype = mask.scalar_type();
    CHECK(p.mask_dtype == ScalarType::Bool || p.mask_dtype == ScalarType::Double || is_float(p.mask_dtype), "attn_mask",
          "of dtype bool or floating point", dtype_string(p.mask_dtype));
    p.mask_kind = p.mask_dtype == ScalarType::Bool ? MaskKind::boolean : MaskKind::additive;
    p.mask_stride = broadcast_strides(mask, {p.batch, p.heads, p.q_len, p.kv_len}, "attn_mask");
  }
  if (a.causal) {
    CHECK(*a.causal == "upper_left" || *a.causal == "lower_right", "causal", "'upper_left', 'lower_right' or None",
          *a.causal);
    p.causal = true;
  }
  p.diagonal = a.causal && *a.causal == "upper_left" ? 0 : p.kv_len - p.q_len;
  CHECK(a.window_left >= -1 && a.window_right >= -1, "window", "of -1 (unbounded) or more",
        std::to_string(a.window_left) + ", " + std::to_string(a.window_right));
  p.window_left = std::min(a.window_left, p.q_len + p.kv_len);
  p.window_right = std::min(a.window_right, p.q_len + p.kv_len);
  p.softmax_scale = a.scale ? static_cast<float>(*a.scale) : 1.0f / std::sqrt(static_cast<float>(p.head_dim));
  CHECK(!a.softcap || *a.softcap > 0, "softcap", "positive", std::to_string(*a.softcap));
  // A cap that no float holds must not become the 0 that means none.
  p.softcap = a.softcap ? static_cast<float>(std::max<double>(*a.softcap, std::numeric_limits<float>::min())) : 0.0f;
  if (a.sinks) {
    const Tensor& s = *a.sinks;
    check_head_values(s, "sinks", a.query);
    CHECK(s.dim() == 1 && s.size(0) == p.heads, "sinks", "[H] = [" + std::to_string(p.heads) + "]", shape_string(s));
    p.has_sinks = true, p.sinks_stride = stride_of(s, 0);
  }
  if (a.alibi_slopes) {
    const Tensor& s = *a.alibi_slopes;
    check_head_values(s, "alibi_slopes", a.query);
    CHECK((s.dim() == 1 && s.size(0) == p.heads) || (s.dim() == 2 && s.size(0) == p.batch && s.size(1) == p.heads),
          "alibi_slopes", "[H] or [B, H]", shape_string(s));
    p.has_alibi = true;
    p.alibi_stride = {s.dim() == 1 ? 0 : stride_of(s, 0), stride_of(s, s.dim() - 1)};
  }
  return p;
}

}  // namespace mtl4
