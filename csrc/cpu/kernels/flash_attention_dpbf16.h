// The two products of attention on AVX512-BF16's products of pairs, for bfloat16 inputs.
#pragma once

#if defined(__AVX512BF16__)

#include "cpu/kernels/flash_attention_pairs.h"

namespace mtl4::cpu::MTL4_ISA {

struct Dpbf16Products : PairMatrices {
  struct Session {};
  using Work = DoneWork;
  static void advance(Work&) {}

  Work scores(const uint16_t* q, const uint16_t* keys, int rows, int lo, int hi, float* s) const {
    multiply(with_keys(q, keys, rows, lo, hi, s));
    return {};
  }

  Work accumulate(const bf16* weights, const uint16_t* values, int rows, int lo, int hi, float* out,
                  int64_t out_stride) const {
    multiply(with_values(weights, values, rows, lo, hi, out, out_stride));
    return {};
  }

 private:
  static void multiply(const PairProduct& p) {
    for (int square = 0; square < p.squares; ++square) {
      const uint16_t* b = p.b + 2 * square * p.b_column;
      for_row_blocks<8>(0, p.rows, [&](auto count, int r) {
        constexpr int kCount = decltype(count)::value;
        const uint16_t* a = p.a + r * p.a_stride;
        float* c = p.c + r * p.c_stride + square * 32;
        vf sum[kCount][2] = {};
        if (p.add)
          for (int i = 0; i < kCount; ++i)
            for (int v = 0; v < 2; ++v) sum[i][v] = load(c + i * p.c_stride + v * kLanes);
        for (int64_t pair = 0; pair < 16 * p.steps; ++pair) {
          const __m512bh low = load_as<__m512bh>(b + pair * 32), high = load_as<__m512bh>(b + p.b_column + pair * 32);
#pragma GCC unroll 8
          for (int i = 0; i < kCount; ++i) {
            const __m512bh x = bits_as<__m512bh>(splat(load_as<int32_t>(a + i * p.a_stride + pair * 2)));
            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, low);
            sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, high);
          }
        }
        for (int i = 0; i < kCount; ++i)
          for (int v = 0; v < 2; ++v) store(c + i * p.c_stride + v * kLanes, sum[i][v]);
      });
    }
  }
};

}  // namespace mtl4::cpu::MTL4_ISA

#endif
