// Which keys queries see.
#pragma once

#include "flash_attention/buffers.h"

// Keys [first, last).
struct KeyRange {
  long first, last;
};

// What at least one of the queries sees, of causal and window alone.
inline KeyRange keys_seen(ParamsRef p, long first_query, long last_query) {
  const long first = metal::max(0L, first_query + p.diagonal - p.left);
  const long last = metal::min(long(p.kv_len), last_query + p.diagonal + p.right + 1);
  return {first, metal::max(first, last)};
}

// What a tile of query rows sees of a tile of keys. Causal and window leave a band around a diagonal, and so bounds of
// column - row, which are small numbers where positions need not be.
struct TileSight {
  int lower, upper;  // of column - row, both included
  int begin, end;    // of columns: the keys that there are, [begin, end)

  bool sees(int row, int column) const thread {
    return column - row >= lower && column - row <= upper && column >= begin && column < end;
  }
  bool sees_all(int rows, int columns) const thread {
    return lower <= 1 - rows && upper >= columns - 1 && begin <= 0 && end >= columns;
  }
  bool sees_none(int rows, int columns) const thread {
    return lower > columns - 1 || upper < 1 - rows || begin >= end;
  }
};

// `from`: keys before it belong to another tile.
template <int COLUMNS>
inline TileSight sight_of(ParamsRef p, long query, long key, long from) {
  constexpr long kFar = 1 << 20;
  const long diagonal = query + p.diagonal - key;
  TileSight s;
  s.lower = int(metal::clamp(diagonal - p.left, -kFar, kFar));
  s.upper = int(metal::clamp(diagonal + p.right, -kFar, kFar));
  s.begin = int(metal::clamp(from - key, 0L, long(COLUMNS)));
  s.end = int(metal::clamp(p.kv_len - key, 0L, long(COLUMNS)));
  return s;
}

// What the mask adds to a logit; -inf hides the key.
inline float mask_bias(device const uchar* mask, long at) {
  if (mask_type == kMaskBool) return mask[at] != 0 ? 0.0f : -INFINITY;
  if (mask_type == kMaskHalf) return float(((device const half*)mask)[at]);
  if (mask_type == kMaskBfloat) return float(((device const bfloat*)mask)[at]);
  return ((device const float*)mask)[at];
}

// The mask of a tile, from its first row and column on.
struct TileMask {
  device const uchar* mask;
  long at, row_stride, column_stride;

  float bias(int row, int column) const thread {
    return mask_bias(mask, at + row * row_stride + column * column_stride);
  }
};

template <typename T>
inline TileMask mask_of(thread const Head<T>& h, ParamsRef p, long query, long key) {
  return {h.mask, h.mask_at + query * p.mask_stride[2] + key * p.mask_stride[3], p.mask_stride[2], p.mask_stride[3]};
}

// Does the mask leave any of the keys visible to `rows` rows? Asked by a whole simdgroup.
template <int ROWS, int COLUMNS>
inline bool shows_any(TileMask mask, TileSight sight, int rows, uint lane) {
  bool any = false;
  for (int i = int(lane); i < ROWS * COLUMNS; i += 32) {
    const int row = i / COLUMNS, column = i % COLUMNS;
    if (row < rows && sight.sees(row, column)) any |= mask.bias(row, column) != -INFINITY;
  }
  return metal::simd_any(any);
}
