// The two products of attention on AMX tiles, for bfloat16 inputs.
#pragma once

#if defined(__AMX_BF16__)

#include "cpu/kernels/amx.h"
#include "cpu/kernels/flash_attention_fma.h"

namespace mtl4::cpu::MTL4_ISA {

// Packed keys and values are AMX's second operand: tiles of 16 columns and 32 steps of the sum, in which each 32-bit
// word holds two steps of one column. Keys lie as [kBK / 16][D / 32] such tiles, values as [Dv / 16][kBK / 32].
struct AmxProducts {
  using Packed = uint16_t;
  using Weight = bf16;
  using Session = AmxTiles;
  static constexpr int kTile = 16 * 32;

  int64_t head_dim, v_head_dim;

  int64_t query_stride() const { return padded(head_dim); }
  int64_t query_floats(int64_t rows) const { return rows * padded(head_dim) / 2; }
  int64_t key_floats() const { return kBK * padded(head_dim) / 2; }
  int64_t value_floats() const { return kBK * padded(v_head_dim) / 2; }

  // 32 elements from d on, 0 beyond n.
  static __m512i load32(const bf16* row, int64_t d, int64_t n) {
    const int64_t left = n - d;
    const __mmask32 lanes = left >= 32 ? ~0u : left > 0 ? (1u << left) - 1 : 0;
    return _mm512_maskz_loadu_epi16(lanes, row + d);
  }

  void pack_query(const bf16* row, int64_t stride, float* copy, uint16_t* to) const {
    const bf16* q = dense_row(row, stride, head_dim, copy);
    for (int64_t d = 0; d < padded(head_dim); d += 32) _mm512_storeu_si512(to + d, load32(q, d, head_dim));
  }

  void pack_keys(const bf16* keys, int64_t key_stride, int64_t stride, int lo, int hi, float* copy,
                 uint16_t* to) const {
    const int end = (hi + 31) / 32 * 32;
    const int64_t steps = padded(head_dim) / 32;
    for (int j = lo / 32 * 32; j < end; j += 16) {
      const bf16* row[16];
      for (int i = 0; i < 16; ++i)
        row[i] = j + i < lo || j + i >= hi
                     ? nullptr
                     : dense_row(keys + (j + i) * key_stride, stride, head_dim, copy + i * kMaxHeadDim);
      for (int64_t d = 0; d < steps; ++d) {
        vf x[16];
        for (int i = 0; i < 16; ++i) x[i] = row[i] ? bits_as<vf>(load32(row[i], d * 32, head_dim)) : vf{};
        transpose(x);
        uint16_t* tile = to + (j / 16 * steps + d) * kTile;
        for (int i = 0; i < 16; ++i) std::memcpy(tile + i * 32, &x[i], 64);
      }
    }
  }

  bool pack_values(const bf16* values, int64_t key_stride, int64_t stride, int lo, int hi, float* copy, uint8_t* marks,
                   uint16_t* to) const {
    const int end = (hi + 31) / 32 * 32;
    // Element k of the first row and element k of the second, side by side, for k from 0 and for k from 16 on.
    const auto interleave = [](int first) {
      alignas(64) uint16_t index[32];
      for (int i = 0; i < 32; ++i) index[i] = static_cast<uint16_t>(first + i / 2 + i % 2 * 32);
      return _mm512_load_si512(index);
    };
    const __m512i low = interleave(0), high = interleave(16), exponent = _mm512_set1_epi16(0x7f80);
    bool marked = false;
    for (int j = lo / 32 * 32; j < end; j += 2) {
      const bf16* row[2];
      __mmask32 bad[2] = {0, 0};
      for (int i = 0; i < 2; ++i)
        row[i] = j + i < lo || j + i >= hi
                     ? nullptr
                     : dense_row(values + (j + i) * key_stride, stride, v_head_dim, copy + i * kMaxHeadDim);
      for (int64_t d = 0; d < padded(v_head_dim); d += 32) {
        __m512i x[2];
        for (int i = 0; i < 2; ++i) {
          x[i] = row[i] ? load32(row[i], d, v_head_dim) : _mm512_setzero_si512();
          const __mmask32 finite = _mm512_cmpneq_epi16_mask(_mm512_and_si512(x[i], exponent), exponent);
          bad[i] |= ~finite;
          x[i] = _mm512_maskz_mov_epi16(finite, x[i]);
        }
        uint16_t* tile = to + (d / 16 * (kBK / 32) + j / 32) * kTile + j % 32 / 2 * 32;
        _mm512_storeu_si512(tile, _mm512_permutex2var_epi16(x[0], low, x[1]));
        _mm512_storeu_si512(tile + kBK / 32 * kTile, _mm512_permutex2var_epi16(x[0], high, x[1]));
      }
      marks[j] = bad[0] != 0, marks[j + 1] = bad[1] != 0;
      marked |= (bad[0] | bad[1]) != 0;
    }
    return marked;
  }

  // A row of kBQ x 32 squares of c, each made of or increased by `steps` products of tiles. It is done a step at a
  // time, so that the tile unit can be kept busy behind the vector instructions of a softmax.
  struct Work {
    const uint16_t *a, *b;
    int64_t a_stride, b_column;  // elements between rows of a, and between tiles of b that lie side by side
    float* c;
    int64_t c_stride;
    int steps, squares;
    bool both, add;  // whether there are more than 16 rows; whether c is increased
    int step = 0, square = 0;

    int left() const { return (squares - square) * steps - step; }
  };

  Work scores(const uint16_t* q, const uint16_t* keys, int rows, int lo, int hi, float* s) const {
    const int steps = static_cast<int>(padded(head_dim) / 32);
    const int64_t column = steps * kTile;
    return {q, keys + lo / 16 * column, padded(head_dim), column, s + lo, kBK, steps, (hi - lo) / 32, rows > 16, false};
  }

  Work accumulate(const bf16* weights, const uint16_t* values, int rows, int lo, int hi, float* out,
                  int64_t out_stride) const {
    return {reinterpret_cast<const uint16_t*>(weights) + lo,
            values + lo / 32 * kTile,
            2 * kBK,
            kBK / 32 * kTile,
            out,
            out_stride,
            (hi - lo) / 32,
            static_cast<int>(padded(v_head_dim) / 32),
            rows > 16,
            true};
  }

  static void advance(Work& w) {
    // The tile loads are opaque to the compiler: what they read must be in memory by now.
    __asm__ volatile("" ::: "memory");
    const int64_t a_bytes = w.a_stride * 2, c_bytes = w.c_stride * 4;
    float *c = w.c + w.square * 32, *c_below = c + 16 * w.c_stride;
    if (w.step == 0) {
      if (w.add) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + 16, c_bytes);
        if (w.both) _tile_loadd(2, c_below, c_bytes);
        if (w.both) _tile_loadd(3, c_below + 16, c_bytes);
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
    if (w.both) {
      _tile_loadd(5, a + 16 * w.a_stride, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    if (++w.step < w.steps) return;
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + 16, c_bytes);
    if (w.both) _tile_stored(2, c_below, c_bytes);
    if (w.both) _tile_stored(3, c_below + 16, c_bytes);
    w.step = 0;
    ++w.square;
  }
};

}  // namespace mtl4::cpu::MTL4_ISA

#endif
