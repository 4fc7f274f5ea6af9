// The operands of attention for instructions that multiply pairs of bfloat16, and their packing.
#pragma once

#if defined(__AVX512BF16__)

#include "cpu/kernels/flash_attention_fma.h"

namespace mtl4::cpu::MTL4_ISA {

// 32 elements from d on, 0 beyond n.
MTL4_INLINE __m512i load32(const bf16* row, int64_t d, int64_t n) {
  const int64_t left = n - d;
  const __mmask32 lanes = left >= 32 ? ~0u : left > 0 ? (1u << left) - 1 : 0;
  return _mm512_maskz_loadu_epi16(lanes, row + d);
}

// Elements k of a and of b side by side, for the 16 k from kFirst on.
template <int kFirst>
MTL4_INLINE __m512i interleave(__m512i a, __m512i b) {
  alignas(64) uint16_t index[32];
  for (int i = 0; i < 32; ++i) index[i] = static_cast<uint16_t>(kFirst + i / 2 + i % 2 * 32);
  return _mm512_permutex2var_epi16(a, _mm512_load_si512(index), b);
}

// One product: c [rows, 32 * squares], made of or increased by a [rows, 32 * steps] times b.
//
// b is packed in tiles of 16 columns and 32 steps of the sum, in which each 32-bit word holds two steps of one column:
// [column / 16][step / 32] such tiles. The hardware takes subnormal inputs and results for 0.
struct PairProduct {
  static constexpr int kTile = 16 * 32;

  const uint16_t *a, *b;
  int64_t a_stride, b_column;  // elements between rows of a, and between tiles of b that lie side by side
  float* c;
  int64_t c_stride;
  int rows, steps, squares;
  bool add;  // whether c is increased
};

struct PairMatrices {
  using Packed = uint16_t;
  using Weight = bf16;
  using Keys = const uint16_t*;
  using Values = const uint16_t*;
  static constexpr int kTile = PairProduct::kTile;

  int64_t head_dim, v_head_dim;

  int64_t query_stride() const { return padded(head_dim); }
  int64_t query_floats(int64_t rows) const { return rows * padded(head_dim) / 2; }
  int64_t key_floats() const { return kBK * padded(head_dim) / 2; }
  int64_t value_floats() const { return kBK * padded(v_head_dim) / 2; }

  void pack_query(const bf16* row, int64_t stride, float* copy, uint16_t* to) const {
    const bf16* q = dense_row(row, stride, head_dim, copy);
    for (int64_t d = 0; d < padded(head_dim); d += 32) _mm512_storeu_si512(to + d, load32(q, d, head_dim));
  }

  Keys pack_keys(const bf16* keys, int64_t key_stride, int64_t stride, int lo, int hi, float* copy,
                 float* memory) const {
    uint16_t* to = reinterpret_cast<uint16_t*>(memory);
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
    return to;
  }

  Values pack_values(const bf16* values, int64_t key_stride, int64_t stride, int lo, int hi, float* copy,
                     uint8_t* marks, bool* marked, float* memory) const {
    uint16_t* to = reinterpret_cast<uint16_t*>(memory);
    const int end = (hi + 31) / 32 * 32;
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    *marked = false;
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
        _mm512_storeu_si512(tile, interleave<0>(x[0], x[1]));
        _mm512_storeu_si512(tile + kBK / 32 * kTile, interleave<16>(x[0], x[1]));
      }
      marks[j] = bad[0] != 0, marks[j + 1] = bad[1] != 0;
      *marked |= (bad[0] | bad[1]) != 0;
    }
    return to;
  }

  PairProduct with_keys(const uint16_t* q, const uint16_t* keys, int rows, int lo, int hi, float* s) const {
    const int steps = static_cast<int>(padded(head_dim) / 32);
    const int64_t column = steps * kTile;
    return {q, keys + lo / 16 * column, padded(head_dim), column, s + lo, kBK, rows, steps, (hi - lo) / 32, false};
  }

  PairProduct with_values(const bf16* weights, const uint16_t* values, int rows, int lo, int hi, float* out,
                          int64_t out_stride) const {
    return {reinterpret_cast<const uint16_t*>(weights) + lo,
            values + lo / 32 * kTile,
            2 * kBK,
            kBK / 32 * kTile,
            out,
            out_stride,
            rows,
            (hi - lo) / 32,
            static_cast<int>(padded(v_head_dim) / 32),
            true};
  }
};

}  // namespace mtl4::cpu::MTL4_ISA

#endif
