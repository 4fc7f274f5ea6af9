// The tile of mxfp8_gemm.h on AVX512-BF16: pairs of bf16 in, float accumulation.
#pragma once

#include "cpu/kernels/mxfp8_gemm_bf16.h"

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)

namespace mtl4::cpu::MTL4_ISA {

// A register of 16 rows of x, against as many rows of the weight as leave registers for it and a pair of the weight.
// The groups of those rows lie side by side: one pointer to all of them, and constant distances.
constexpr int kDotRows = 28;

template <int kPlanes>
struct DotTile : Bf16Operands<1, kPlanes, kDotRows * kBf16Group> {
  using Operands = Bf16Operands<1, kPlanes, kDotRows * kBf16Group>;
  using Operands::kColumns, Operands::kGroup, Operands::kTile;
  static constexpr int kRows = kDotRows;
  // x comes from the caches fast enough however deep it is.
  static constexpr int64_t kHeight = kRows, kDepth = 16384, kDepthForFew = kDepth;

  static int64_t stride(int64_t depth) { return round_up(depth, kGroup); }
  static uint16_t* row(uint16_t* decoded, int64_t n, int64_t stride) {
    return decoded + n / kRows * kRows * stride + n % kRows * kGroup;
  }

  struct Session {
    Session() {}  // user-provided, so that an unused object of it is no warning
  };

  static void multiply(const uint16_t* weight, int64_t /*stride*/, const uint16_t* x, int64_t rows, int64_t k,
                       float* tile, bool add, Ahead ahead) {
    constexpr int64_t kMostAhead = 8192;  // what is decoded and what is fetched must both fit into the second cache
    if (!ahead.rows || k > kMostAhead) ahead = {reinterpret_cast<const uint8_t*>(weight), 0};  // fetches nothing new
    return rows <= 8 ? multiply<Eight>(weight, x, k, tile, add, ahead)
                     : multiply<Sixteen>(weight, x, k, tile, add, ahead);
  }

 private:
  struct Sixteen {
    __m512 sum;
    MTL4_INLINE void load(const float* from) { sum = _mm512_loadu_ps(from); }
    MTL4_INLINE void store(float* to) const { _mm512_storeu_ps(to, sum); }
    static MTL4_INLINE auto columns(const uint16_t* x) { return load_as<__m512bh>(x); }
    MTL4_INLINE void add(__m512bh x, int32_t pair) {
      sum = _mm512_dpbf16_ps(sum, x, bits_as<__m512bh>(_mm512_set1_epi32(pair)));
    }
  };
  struct Eight {
    __m256 sum;
    MTL4_INLINE void load(const float* from) { sum = _mm256_loadu_ps(from); }
    MTL4_INLINE void store(float* to) const { _mm256_storeu_ps(to, sum); }
    static MTL4_INLINE auto columns(const uint16_t* x) { return load_as<__m256bh>(x); }
    MTL4_INLINE void add(__m256bh x, int32_t pair) {
      sum = _mm256_dpbf16_ps(sum, x, bits_as<__m256bh>(_mm256_set1_epi32(pair)));
    }
  };

  template <typename Sums>
  static void multiply(const uint16_t* weight, const uint16_t* x, int64_t k, float* tile, bool add,
                       const Ahead& ahead) {
    Sums sums[kRows] = {};
    if (add)
#pragma GCC unroll 32
      for (int n = 0; n < kRows; ++n) sums[n].load(tile + n * kColumns);
    for (int64_t i = 0; i < k; i += kGroup, weight += kRows * kGroup)
      for (int q = 0; q < kPlanes; ++q)
        for (int r = 0; r < kGroup; r += 2, x += 2 * kColumns) {
          const auto columns = Sums::columns(x);
          __builtin_prefetch(ahead.rows + smaller(r / 2, kRows - 1) * ahead.stride + i, 0, 2);
#pragma GCC unroll 32
          for (int n = 0; n < kRows; ++n) sums[n].add(columns, load_as<int32_t>(weight + n * kGroup + r));
        }
#pragma GCC unroll 32
    for (int n = 0; n < kRows; ++n) sums[n].store(tile + n * kColumns);
  }
};

}  // namespace mtl4::cpu::MTL4_ISA

#endif
