// The online softmax of one block of kBQ rows over one tile of keys.
#pragma once

#include "cpu/kernels/flash_attention_visible.h"
#include "cpu/kernels/vec_math.h"

namespace mtl4::cpu::MTL4_ISA {

// How logits come from the products of queries and keys, and how they are exponentiated.
//
// Where nothing but a positive scale is applied, products stay as they are and the scale is part of the exponent: a
// row's maximum is held in units of log2. Else the logits are formed first and the maximum is held in their own
// (natural) unit, in which adding the lowest finite number as a mask does not overflow.
struct Logits {
  bool natural;
  float scale, softcap;
  float exponent;  // log2(e), times the scale unless natural

  explicit Logits(const FlashAttentionProblem& p, const FlashAttentionPointers& ptr)
      : natural(p.softcap > 0 || ptr.alibi_slopes != nullptr || p.mask_kind == MaskKind::additive ||
                !(p.softmax_scale > 0)),
        scale(p.softmax_scale),
        softcap(p.softcap),
        exponent(natural ? kLog2e : kLog2e * p.softmax_scale) {}

  float to_natural_log(float max) const { return natural ? max : max * kLn2; }
};

// Turns products into logits in place. bias may be null. position counts from the tile's first key.
inline void form_logits(const Logits& f, float slope, float position, const float* bias, int lo, int hi, float* s) {
  const vf lanes = __builtin_convertvector(iota(), vf);
  for (int j = lo; j < hi; j += kLanes) {
    vf x = load(s + j);
    if (f.natural) {
      x *= f.scale;
      if (f.softcap > 0) x = f.softcap * tanh(x / f.softcap);
      if (slope != 0) x -= slope * abs(position - (lanes + static_cast<float>(j)));
    }
    if (bias != nullptr) {
      const vf b = load(bias + j);
      x = select(b == -kInf, b, x + b);
    }
    store(s + j, x);
  }
}

// A block computes the keys [lo, hi), both multiples of 32, of which a row may see fewer.
inline void hide_outside(float* s, Interval in, int lo, int hi) {
  for (int j = lo; j < in.lo; ++j) s[j] = -kInf;
  for (int j = in.hi; j < hi; ++j) s[j] = -kInf;
}

MTL4_INLINE float row_max(const float* s, int lo, int hi) {
  constexpr int kStep = 32;
  vf m[kStep / kLanes];
  for (auto& x : m) x = splat(-kInf);
  for (int j = lo; j < hi; j += kStep)
    for (int v = 0; v < kStep / kLanes; ++v) m[v] = max(m[v], load(s + j + v * kLanes));
  for (int v = 1; v < kStep / kLanes; ++v) m[0] = max(m[0], m[v]);
  return reduce_max(m[0]);
}

MTL4_INLINE void store_weights(float* p, const vf (&w)[32 / kLanes]) {
  for (int v = 0; v < 32 / kLanes; ++v) store(p + v * kLanes, w[v]);
}
#if defined(__AVX512BF16__)
MTL4_INLINE void store_weights(bf16* p, const vf (&w)[2]) {
  const __m512bh both = _mm512_cvtne2ps_pbh(w[1], w[0]);
  std::memcpy(p, &both, sizeof both);
}
#endif

// Writes exp(logit - max) and returns their sum.
template <bool kNatural, typename P>
MTL4_INLINE float exponentiate(const float* s, P* weights, int lo, int hi, float max, float exponent) {
  vf sum[32 / kLanes] = {};
  for (int j = lo; j < hi; j += 32) {
    vf w[32 / kLanes];
    for (int v = 0; v < 32 / kLanes; ++v) {
      const vf x = load(s + j + v * kLanes);
      w[v] = exp2(kNatural ? (x - max) * exponent : fma(x, splat(exponent), splat(-max)));
      sum[v] += w[v];
    }
    store_weights(weights + j, w);
  }
  for (int v = 1; v < 32 / kLanes; ++v) sum[0] += sum[v];
  return reduce_add(sum[0]);
}

// Of kBQ rows: the running maximum and sum, and the factor by which the last tile changed the older part of the row.
struct RowState {
  float *max, *sum, *decay;
};

// Replaces each row of s [kBQ, kBK] by its weights, which take the front of the row's memory where they are narrower:
// a second buffer would not fit the first cache beside this one. Calls between_rows() after each row. Returns whether
// any decay differs from 1.
template <typename P, typename F>
inline bool softmax_tile(const Logits& f, float* s, int rows, int lo, int hi, RowState state, const F& between_rows) {
  float top[kBQ];
  for (int r = 0; r < kBQ; ++r) top[r] = r < rows ? row_max(s + r * kBK, lo, hi) : -kInf;
  const vf unit = splat(f.natural ? 1.0f : f.exponent);
  bool changed = false;
  for (int r = 0; r < kBQ; r += kLanes) {
    const vf old = load(state.max + r);
    const vf now = max(load(top + r) * unit, old);
    // With nothing seen yet both are -inf, and 0 in their place keeps their difference from being NaN.
    const vf from = select(now == -kInf, splat(0.0f), now);
    const vf decay = exp2(f.natural ? (old - from) * kLog2e : old - from);
    store(state.max + r, now);
    store(state.decay + r, decay);
    store(top + r, from);
    changed |= any(decay != 1.0f);
  }
  for (int r = 0; r < rows; ++r) {
    P* weights = reinterpret_cast<P*>(s + r * kBK);
    const float sum = f.natural ? exponentiate<true>(s + r * kBK, weights, lo, hi, top[r], f.exponent)
                                : exponentiate<false>(s + r * kBK, weights, lo, hi, top[r], f.exponent);
    state.sum[r] = state.sum[r] * state.decay[r] + sum;
    between_rows();
  }
  return changed;
}

}  // namespace mtl4::cpu::MTL4_ISA
