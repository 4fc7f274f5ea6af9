// The two products of attention on AMX tiles, for bfloat16 inputs.
#pragma once

#include "cpu/kernels/amx.h"

#if defined(MTL4_AMX)

#include "cpu/kernels/flash_attention_pairs.h"

namespace mtl4::cpu::MTL4_ISA {

struct AmxProducts : PairMatrices {
  using Session = AmxTiles;

  // A row of kBQ x 32 squares of c, done a step at a time, so that the tile unit can be kept busy behind the vector
  // instructions of a softmax.
  struct Work : PairProduct {
    int step = 0, square = 0;

    int left() const { return (squares - square) * steps - step; }
  };

  Work scores(const uint16_t* q, const uint16_t* keys, int rows, int lo, int hi, float* s) const {
    return {with_keys(q, keys, rows, lo, hi, s)};
  }

  Work accumulate(const bf16* weights, const uint16_t* values, int rows, int lo, int hi, float* out,
                  int64_t out_stride) const {
    return {with_values(weights, values, rows, lo, hi, out, out_stride)};
  }

  static void advance(Work& w) {
    // The tile loads are opaque to the compiler: what they read must be in memory by now.
    __asm__ volatile("" ::: "memory");
    const bool both = w.rows > 16;
    const int64_t a_bytes = w.a_stride * 2, c_bytes = w.c_stride * 4;
    float *c = w.c + w.square * 32, *c_below = c + 16 * w.c_stride;
    if (w.step == 0) {
      if (w.add) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + 16, c_bytes);
        if (both) _tile_loadd(2, c_below, c_bytes);
        if (both) _tile_loadd(3, c_below + 16, c_bytes);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
    }
    const uint16_t *a = w.a + w.step * 32, *b = w.b + 2 * w.square * w.b_column + w.step * kTile;
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + w.b_column, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (both) {
      _tile_loadd(5, a + 16 * w.a_stride, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    if (++w.step < w.steps) return;
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + 16, c_bytes);
    if (both) _tile_stored(2, c_below, c_bytes);
    if (both) _tile_stored(3, c_below + 16, c_bytes);
    w.step = 0;
    ++w.square;
  }
};

}  // namespace mtl4::cpu::MTL4_ISA

#endif
