// A few rows of x in bf16 or fp16 against the weight as it lies in memory, by dot products of bf16.
//
// As in mxfp8_gemv.h the products of a block are summed and then multiplied by the block's scale in float, so that
// every scale byte means what it says. NaN codes become NaN by themselves.
#pragma once

#include "cpu/kernels/mxfp8_bf16.h"
#include "cpu/kernels/mxfp8_gemm.h"

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)

namespace mtl4::cpu::MTL4_ISA {

// Rows of x group by group: [group][M rows][planes][first, second], zeros behind column k and behind the last row.
// False if it holds an element with which the sum of a block, before its scale, can overflow or be subnormal.
template <int M, typename T>
bool pack_dot_rows(const T* x, int64_t rows, int64_t k, uint16_t* out) {
  constexpr int kPlanes = kBf16Planes<T>;
  constexpr int16_t kLeast = (127 - 107) << 7, kTooMuch = (127 + 100) << 7;  // 2^-107 and 2^100
  __mmask32 outside = 0;
  const auto put = [&](__m512i v, uint16_t* to) {
    const __m512i magnitude = _mm512_and_si512(v, _mm512_set1_epi16(0x7fff));
    const __m512i above_least = _mm512_sub_epi16(magnitude, _mm512_set1_epi16(kLeast));
    outside |= _mm512_mask_cmpge_epu16_mask(_mm512_test_epi16_mask(magnitude, magnitude), above_least,
                                            _mm512_set1_epi16(kTooMuch - kLeast));
    _mm512_storeu_si512(to, v);
  };
  for (int64_t i = 0; i < k; i += kBf16Group)
    for (int64_t m = 0; m < M; ++m) {
      __m512i first[kPlanes] = {}, second[kPlanes] = {};
      if (m < rows) split_group<kPlanes>(x + m * k + i, k - i < kBf16Group ? k - i : kBf16Group, first, second);
      for (int q = 0; q < kPlanes; ++q, out += kBf16Group) {
        put(first[q], out);
        put(second[q], out + 32);
      }
    }
  return outside == 0;
}

// Adds a group: of codes[r] under the scales factor[r], for R rows of the weight.
template <int R, int M, int kPlanes>
MTL4_INLINE void add_group(const E4m3ToBf16<0>& table, const __m512i (&codes)[R], const vf (&factor)[R],
                           const uint16_t* x, vf (&acc)[R][M]) {
  __m512bh first[R], second[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    __m512i low, high;
    table.look_up(codes[r], low, high);
    high = select_bits(_mm512_set1_epi8(static_cast<char>(0x80)), codes[r], high);
    first[r] = bits_as<__m512bh>(_mm512_unpacklo_epi8(low, high));
    second[r] = bits_as<__m512bh>(_mm512_unpackhi_epi8(low, high));
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    __m512 sum[R] = {};
#pragma GCC unroll 2
    for (int q = 0; q < kPlanes; ++q) {
      const uint16_t* at = x + (m * kPlanes + q) * kBf16Group;
      const auto x_first = load_as<__m512bh>(at), x_second = load_as<__m512bh>(at + 32);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        sum[r] = _mm512_dpbf16_ps(sum[r], first[r], x_first);
        sum[r] = _mm512_dpbf16_ps(sum[r], second[r], x_second);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) acc[r][m] = fma(sum[r], factor[r], acc[r][m]);
  }
}

// y[r][m] = sum over k of x[m][k] * weight[r][k], for R rows of the weight: they share the loads of x, and more of
// the memory's reads are under way at once.
template <int R, int M, int kPlanes>
void dot_rows(const uint16_t* x, const uint8_t* weight, int64_t weight_stride, const uint8_t* scale,
              int64_t scale_stride, int64_t k, float (&y)[R][M]) {
  constexpr int64_t kAhead = 2048;  // bytes: the hardware's own prefetch ends with the page
  constexpr int64_t kScales = kLanes;
  const E4m3ToBf16<0> table;
  vf acc[R][M] = {};
  for (int64_t i = 0; i < k; i += kScales * kMxBlock) {
    const int64_t end = k - i < kScales * kMxBlock ? k : i + kScales * kMxBlock;
    vf scales[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
      scales[r] = decode_e8m0_first(scale + r * scale_stride + i / kMxBlock,
                                    static_cast<int>((end - i + kMxBlock - 1) / kMxBlock));
    __m512i blocks_of_lanes = second_half_of_lanes<float>();
    __m512i codes[R];
    vf factor[R];
    const auto factors = [&] {
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) factor[r] = _mm512_permutexvar_ps(blocks_of_lanes, scales[r]);
    };
    int64_t j = i;
    for (; j + kBf16Group <= end; j += kBf16Group, x += M * kPlanes * kBf16Group) {
      const int64_t ahead = j + kAhead < k ? kAhead : kAhead - k + R * weight_stride;  // then: the rows that follow
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const uint8_t* at = weight + r * weight_stride + j;
        __builtin_prefetch(at + ahead);
        codes[r] = _mm512_loadu_si512(at);
      }
      factors();
      add_group<R, M, kPlanes>(table, codes, factor, x, acc);
      blocks_of_lanes = _mm512_add_epi32(blocks_of_lanes, _mm512_set1_epi32(2));
    }
    if (j < end) {
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) codes[r] = load_codes(weight + r * weight_stride + j, end - j);
      factors();
      add_group<R, M, kPlanes>(table, codes, factor, x, acc);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) y[r][m] = reduce_add(acc[r][m]);
}

// Columns [n, n + R) of out.
template <int R, int M, typename T>
MTL4_INLINE void dot_columns(const Mxfp8LinearProblem& p, const LinearPointers<T>& ptr, const uint16_t* x, int64_t n) {
  float y[R][M];
  dot_rows<R, M, kBf16Planes<T>>(x, ptr.weight + n * p.weight_stride, p.weight_stride,
                                 ptr.scale + n * p.weight_scale_stride, p.weight_scale_stride, p.k, y);
  for (int64_t r = 0; r < R; ++r) {
    const float bias = ptr.bias ? to_float(ptr.bias[(n + r) * p.bias_stride]) : 0.0f;
    for (int64_t m = 0; m < p.m; ++m) store_first(ptr.out + m * p.n + n + r, splat(y[r][m] + bias), 1);
  }
}

// All of out, for at most M rows of x. False, and nothing done, where x holds what these products are not for.
template <int M, typename T>
bool dot_gemv(const Mxfp8LinearProblem& p, const LinearPointers<T>& ptr) {
  constexpr int R = 4;
  const Buffer<uint16_t> x(M * kBf16Planes<T> * round_up(p.k, kBf16Group));
  if (!pack_dot_rows<M>(ptr.x, p.m, p.k, x.get())) return false;
  torch::stable::parallel_for(0, p.n, 16, [&](int64_t begin, int64_t end) {
    int64_t n = begin;
    for (; n + R <= end; n += R) dot_columns<R, M>(p, ptr, x.get(), n);
    for (; n < end; ++n) dot_columns<1, M>(p, ptr, x.get(), n);
  });
  return true;
}

}  // namespace mtl4::cpu::MTL4_ISA

#endif
