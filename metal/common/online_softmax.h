// The online softmax of a row, once for every kernel: the largest logit so far, and the sum of exponentials that are
// relative to it. Needs -inf and NaN as IEEE says: sources that include this are compiled with safe math.
#pragma once

#include <metal_stdlib>

constant constexpr float kLog2e = 1.44269504f;

// What exponents are relative to: 0 as long as nothing was seen, since -inf less -inf is NaN.
inline float softmax_anchor(float max) { return max == -INFINITY ? 0.0f : max; }

inline float softmax_weight(float logit, float max) { return metal::exp2((logit - softmax_anchor(max)) * kLog2e); }

// The factor by which what was summed relative to `old_max` shrinks where the maximum becomes `new_max`.
inline float softmax_decay(float old_max, float new_max) { return softmax_weight(old_max, new_max); }

// How a row ends: out is its weighted values times `factor`, see softmax_output.
struct SoftmaxEnd {
  float factor, lse;
};

// A sink is one more logit, in the denominator only; -inf is none.
inline SoftmaxEnd softmax_end(float max, float sum, float sink) {
  const float top = metal::max(max, sink), shrunk = softmax_weight(max, top);
  const float total = sum * shrunk + softmax_weight(sink, top);
  return {sum == 0 ? 0.0f : shrunk / total, softmax_anchor(top) + metal::log(total)};
}

// Where nothing has weight the output is 0, also when a hidden value that is not finite came along.
inline float softmax_output(float weighted, float factor) { return factor == 0 ? 0.0f : weighted * factor; }
