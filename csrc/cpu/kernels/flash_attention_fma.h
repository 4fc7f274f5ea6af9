// The two products of attention on fp32 multiply-adds, for inputs of any dtype.
#pragma once

#include "cpu/kernels/flash_attention.h"
#include "cpu/kernels/vec.h"

namespace mtl4::cpu::MTL4_ISA {

// A panel is kPanel columns wide; the inner loops hold kRows x kPanel sums in registers.
#if defined(__AVX512F__)
constexpr int kPanelVectors = 2, kRows = 8;
#elif defined(__AVX2__)
constexpr int kPanelVectors = 2, kRows = 6;
#elif defined(__aarch64__)
constexpr int kPanelVectors = 4, kRows = 6;
#else
constexpr int kPanelVectors = 2, kRows = 4;
#endif
constexpr int kPanel = kPanelVectors * kLanes;
static_assert(32 % kPanel == 0);

template <int N>
struct Count {
  static constexpr int value = N;
};

// Calls f(Count<n>, first row) for blocks of at most N rows.
template <int N, typename F>
MTL4_INLINE void for_row_blocks(int first, int rows, const F& f) {
  for (; first + N <= rows; first += N) f(Count<N>{}, first);
  if constexpr (N > 1)
    if (first < rows) for_row_blocks<N - 1>(first, rows, f);
}

// The row of a tensor as dense elements: in place where they lie so, else gathered into `copy`.
template <typename T>
MTL4_INLINE const T* dense_row(const T* row, int64_t stride, int64_t n, float* copy) {
  if (stride == 1) return row;
  T* dense = reinterpret_cast<T*>(copy);
  for (int64_t d = 0; d < n; ++d) dense[d] = row[d * stride];
  return dense;
}

constexpr int64_t padded(int64_t dim) { return (dim + 31) / 32 * 32; }

// The work of products that are formed at once, where there is no second unit to form them behind a softmax.
struct DoneWork {
  static constexpr int left() { return 0; }
};

struct FmaMatrices {
  static constexpr int64_t kMostTerms = 128;
  using Packed = float;         // an element of queries
  using Weight = float;         // an exponential
  using Keys = const float*;    // a tile of keys, of values
  using Values = const float*;  //
  struct Session {};            // what must be alive while products are formed

  int64_t head_dim, v_head_dim;

  // Elements of a packed query row, and floats of the packed tiles.
  int64_t query_stride() const { return head_dim; }
  int64_t query_floats(int64_t rows) const { return rows * head_dim; }
  int64_t key_floats() const { return kBK * head_dim; }
  int64_t value_floats() const { return kBK * padded(v_head_dim); }

  using Work = DoneWork;
  static void advance(Work&) {}

  // s [kBQ, kBK] = queries * keys^T at columns [lo, hi), multiples of 32. Sums of sums of at most kMostTerms terms,
  // which round less than one long sum does.
  Work scores(const float* q, const float* keys, int rows, int lo, int hi, float* s) const {
    for (int j = lo; j < hi; j += kPanel) {
      const float* panel = keys + j * head_dim;
      for_row_blocks<kRows>(0, rows, [&](auto count, int r) {
        constexpr int kCount = decltype(count)::value;
        for (int64_t begin = 0; begin < head_dim; begin += kMostTerms) {
          const int64_t end = begin + kMostTerms < head_dim ? begin + kMostTerms : head_dim;
          vf sum[kCount][kPanelVectors] = {};
          for (int64_t d = begin; d < end; ++d) {
            vf k[kPanelVectors];
#pragma GCC unroll 4
            for (int v = 0; v < kPanelVectors; ++v) k[v] = load(panel + d * kPanel + v * kLanes);
#pragma GCC unroll 16
            for (int i = 0; i < kCount; ++i) {
              const vf x = splat(q[(r + i) * head_dim + d]);
#pragma GCC unroll 4
              for (int v = 0; v < kPanelVectors; ++v) sum[i][v] = fma(x, k[v], sum[i][v]);
            }
          }
          for (int i = 0; i < kCount; ++i)
            for (int v = 0; v < kPanelVectors; ++v) {
              float* to = s + (r + i) * kBK + j + v * kLanes;
              store(to, begin == 0 ? sum[i][v] : load(to) + sum[i][v]);
            }
        }
      });
    }
    return {};
  }

  // out [rows, out_stride] += weights [kBQ, kBK] * values over keys [lo, hi).
  Work accumulate(const float* weights, const float* values, int rows, int lo, int hi, float* out,
                  int64_t out_stride) const {
    for (int64_t c = 0; c < v_head_dim; c += kPanel) {
      const float* panel = values + c * kBK;
      for_row_blocks<kRows>(0, rows, [&](auto count, int r) {
        constexpr int kCount = decltype(count)::value;
        vf sum[kCount][kPanelVectors];
        for (int i = 0; i < kCount; ++i)
          for (int v = 0; v < kPanelVectors; ++v) sum[i][v] = load(out + (r + i) * out_stride + c + v * kLanes);
        for (int j = lo; j < hi; ++j) {
          vf x[kPanelVectors];
#pragma GCC unroll 4
          for (int v = 0; v < kPanelVectors; ++v) x[v] = load(panel + j * kPanel + v * kLanes);
#pragma GCC unroll 16
          for (int i = 0; i < kCount; ++i) {
            const vf w = splat(weights[(r + i) * kBK + j]);
#pragma GCC unroll 4
            for (int v = 0; v < kPanelVectors; ++v) sum[i][v] = fma(w, x[v], sum[i][v]);
          }
        }
        for (int i = 0; i < kCount; ++i)
          for (int v = 0; v < kPanelVectors; ++v) store(out + (r + i) * out_stride + c + v * kLanes, sum[i][v]);
      });
    }
    return {};
  }
};

template <typename T>
struct FmaProducts : FmaMatrices {
  using FmaMatrices::head_dim, FmaMatrices::v_head_dim;

  void pack_query(const T* row, int64_t stride, float* copy, float* to) const {
    const T* q = dense_row(row, stride, head_dim, copy);
    for (int64_t d = 0; d < head_dim; d += kLanes) store_first(to + d, load_first(q + d, head_dim - d), head_dim - d);
  }

  // Panels of [D][kPanel]: keys become columns. Only keys [lo, hi) of the tile are read.
  Keys pack_keys(const T* keys, int64_t key_stride, int64_t stride, int lo, int hi, float* copy, float* to) const {
    const int end = (hi + 31) / 32 * 32;
    for (int j = lo / 32 * 32; j < end; j += kLanes) {
      const T* row[kLanes];
      for (int i = 0; i < kLanes; ++i)
        row[i] = j + i < lo || j + i >= hi
                     ? nullptr
                     : dense_row(keys + (j + i) * key_stride, stride, head_dim, copy + i * kMaxHeadDim);
      float* panel = to + j / kPanel * kPanel * head_dim + j % kPanel;
      for (int64_t d = 0; d < head_dim; d += kLanes) {
        vf x[kLanes];
        for (int i = 0; i < kLanes; ++i) x[i] = row[i] ? load_first(row[i] + d, head_dim - d) : vf{};
        transpose(x);
        const int n = head_dim - d < kLanes ? static_cast<int>(head_dim - d) : kLanes;
        for (int i = 0; i < n; ++i) store(panel + (d + i) * kPanel, x[i]);
      }
    }
    return to;
  }

  // Panels of [kBK][kPanel], 0 outside keys [lo, hi) and at elements that are not finite; those keys are marked.
  Values pack_values(const T* values, int64_t key_stride, int64_t stride, int lo, int hi, float* copy, uint8_t* marks,
                     bool* marked, float* to) const {
    *marked = false;
    const int end = (hi + 31) / 32 * 32;
    for (int j = lo / 32 * 32; j < end; ++j) {
      const bool read = j >= lo && j < hi;
      const T* v = read ? dense_row(values + j * key_stride, stride, v_head_dim, copy) : nullptr;
      vi bad{};
      for (int64_t d = 0; d < v_head_dim; d += kPanel) {
        float* row = to + d * kBK + j * kPanel;
        for (int c = 0; c < kPanel; c += kLanes) {
          const vf x = read ? load_first(v + d + c, v_head_dim - d - c) : vf{};
          const vi not_finite = x - x != 0.0f;
          bad |= not_finite;
          store(row + c, select(not_finite, vf{}, x));
        }
      }
      marks[j] = any(bad);
      *marked |= marks[j] != 0;
    }
    return to;
  }
};

}  // namespace mtl4::cpu::MTL4_ISA
