// Which keys of a tile each query row sees.
#pragma once

#include "cpu/kernels/flash_attention.h"
#include "cpu/kernels/vec.h"

namespace mtl4::cpu::MTL4_ISA {

constexpr float kInf = __builtin_inff();

// Keys [lo, hi), counted from the tile's first; `biased` where the mask says more about them than "all visible".
struct Interval {
  int lo, hi;
  bool biased;
};

template <typename T>
inline void widen_strided(const T* from, int64_t stride, int n, float* to) {
  if (stride == 1) {
    for (int j = 0; j < n; j += kLanes) store_first(to + j, load_first(from + j, n - j), n - j);
  } else {
    for (int j = 0; j < n; ++j) to[j] = to_float(from[j * stride]);
  }
}

// The logit bias that the mask gives to n keys from element `at` on: 0 or -inf where it is boolean.
inline void load_bias(const FlashAttentionProblem& p, const void* mask, int64_t at, int n, float* bias) {
  using torch::headeronly::ScalarType;
  const int64_t stride = p.mask_stride[3];
  if (p.mask_kind == MaskKind::boolean) {
    const uint8_t* m = static_cast<const uint8_t*>(mask) + at;
    for (int j = 0; j < n; ++j) bias[j] = m[j * stride] ? 0.0f : -kInf;
  } else if (p.mask_dtype == ScalarType::Float) {
    widen_strided(static_cast<const float*>(mask) + at, stride, n, bias);
  } else if (p.mask_dtype == ScalarType::Half) {
    widen_strided(static_cast<const fp16*>(mask) + at, stride, n, bias);
  } else if (p.mask_dtype == ScalarType::Double) {
    const double* m = static_cast<const double*>(mask) + at;
    for (int j = 0; j < n; ++j) bias[j] = static_cast<float>(m[j * stride]);
  } else {
    widen_strided(static_cast<const bf16*>(mask) + at, stride, n, bias);
  }
}

constexpr uint64_t kOnes = 0x0101010101010101u, kTops = 0x8080808080808080u;
MTL4_INLINE bool has_zero_byte(uint64_t x) { return ((x - kOnes) & ~x & kTops) != 0; }

// Drops the hidden keys at both ends of `in` from a row of dense booleans.
inline Interval narrow_dense(const uint8_t* row, Interval in) {
  while (in.lo + 8 <= in.hi && load_as<uint64_t>(row + in.lo) == 0) in.lo += 8;
  while (in.lo < in.hi && row[in.lo] == 0) ++in.lo;
  while (in.lo + 8 <= in.hi && load_as<uint64_t>(row + in.hi - 8) == 0) in.hi -= 8;
  while (in.lo < in.hi && row[in.hi - 1] == 0) --in.hi;
  int j = in.lo;
  for (; j + 8 <= in.hi && !in.biased; j += 8) in.biased = has_zero_byte(load_as<uint64_t>(row + j));
  for (; j < in.hi && !in.biased; ++j) in.biased = row[j] == 0;
  return in;
}

// The same for any mask; `at` is the element of the tile's first key.
inline Interval narrow(const FlashAttentionProblem& p, const void* mask, int64_t at, Interval in, float* bias) {
  if (in.lo >= in.hi) return in;
  if (p.mask_kind == MaskKind::boolean && p.mask_stride[3] == 1)
    return narrow_dense(static_cast<const uint8_t*>(mask) + at, in);
  load_bias(p, mask, at + in.lo * p.mask_stride[3], in.hi - in.lo, bias + in.lo);
  while (in.lo < in.hi && bias[in.lo] == -kInf) ++in.lo;
  while (in.lo < in.hi && bias[in.hi - 1] == -kInf) --in.hi;
  for (int j = in.lo; j < in.hi && !in.biased; ++j) in.biased = bias[j] != 0;
  return in;
}

// Keys that causal and window leave to the query at position i, before the mask.
struct KeyRange {
  int64_t lo, hi;
};
inline KeyRange key_range(const FlashAttentionProblem& p, int64_t i) {
  const int64_t centre = i + p.diagonal;
  KeyRange r{0, p.kv_len};
  if (p.window_left >= 0 && centre - p.window_left > r.lo) r.lo = centre - p.window_left;
  if (p.window_right >= 0 && centre + p.window_right + 1 < r.hi) r.hi = centre + p.window_right + 1;
  if (p.causal && centre + 1 < r.hi) r.hi = centre + 1;
  return r;
}

}  // namespace mtl4::cpu::MTL4_ISA
