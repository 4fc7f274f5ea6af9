// From the product of a query and a key to its logit.
#pragma once

#include "flash_attention/visible.h"

// tanh from exp, and from its series where that would cancel: Metal's own is a choice between fast and exact.
inline float tanh_of(float x) {
  const float square = x * x;
  if (square < 0.16f) {
    const float tail = 62.0f / 2835 + square * (-1382.0f / 155925 + square * (21844.0f / 6081075));
    return x + x * square * (-1.0f / 3 + square * (2.0f / 15 + square * (-17.0f / 315 + square * tail)));
  }
  const float e = metal::exp2(metal::abs(x) * (-2 * 1.44269504f));
  const float magnitude = (1 - e) / (1 + e);
  return x < 0 ? -magnitude : magnitude;
}

// Scale, then softcap, then ALiBi. `distance` is from the query's own position to the key's.
inline float form_logit(float product, ParamsRef p, float slope, float distance) {
  float logit = product * p.softmax_scale;
  if (has_softcap) logit = p.softcap * tanh_of(logit / p.softcap);
  if (has_alibi) logit -= slope * metal::abs(distance);
  return logit;
}

// The logit after the masks. A key that is hidden is so whatever its product is.
inline float masked_logit(float logit, bool seen, TileMask mask, int row, int column) {
  if (!seen) return -INFINITY;
  if (!has_mask) return logit;
  const float bias = mask.bias(row, column);
  return bias == -INFINITY ? -INFINITY : logit + bias;
}
