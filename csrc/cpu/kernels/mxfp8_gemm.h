// Many rows of x: panels of the weight are decoded once per kRowsAtOnce rows of x and multiplied from the cache.
//
// The weight is the operand that keeps its own layout (one row of the tile per row of the weight); x is packed once
// into panels, k outermost. So the accumulators hold out transposed, and the epilogue turns them. Every element of out
// is one sum in order of k, however rows, columns and threads are divided.
#pragma once

#include <torch/csrc/stable/ops.h>

#include "cpu/kernels/buffer.h"
#include "cpu/kernels/mxfp8_gemv.h"

namespace mtl4::cpu::MTL4_ISA {

constexpr int64_t kRowsAtOnce = 512;  // of x: bounds the memory for the packed copy
constexpr int64_t kMostRows = 128;    // of the weight: the most that a thread decodes before it multiplies
constexpr int64_t kTurn = 16;         // the epilogue turns squares of this side; a multiple of kLanes

MTL4_INLINE int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
MTL4_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <typename T>
struct LinearPointers {
  const T* x;
  const uint8_t *weight, *scale;
  const T* bias;
  T* out;
};

// Columns `first` .. of out for rows x[0, rows), by the kernel that is exact for every scale byte.
template <int M, typename T>
MTL4_INLINE void dot_column(const Mxfp8LinearProblem& p, const LinearPointers<T>& ptr, const FloatRows& x, int64_t m,
                            int64_t n) {
  float y[M];
  dot_rows<M>(x, ptr.weight + n * p.weight_stride, ptr.scale + n * p.weight_scale_stride, p.k, y);
  const float b = ptr.bias ? to_float(ptr.bias[n * p.bias_stride]) : 0.0f;
  for (int i = 0; i < M; ++i) store_first(ptr.out + (m + i) * p.n + n, splat(y[i] + b), 1);
}

// Where `odd` says so, columns n0.. of rows [m0, m1): those whose row of the weight holds a NaN, or a scale with which
// a tile's number format cannot hold the products.
template <typename T>
void odd_columns(const Mxfp8LinearProblem& p, const LinearPointers<T>& ptr, const bool* odd, int64_t n0,
                 int64_t columns, int64_t m0, int64_t m1) {
  bool any_odd = false;
  for (int64_t n = 0; n < columns; ++n) any_odd |= odd[n];
  if (!any_odd) return;
  const int64_t stride = round_up(p.k, kMxBlock);
  const Buffer<float> rows(kGemvRows * stride);
  FloatRows x{rows.get(), stride, {}};
  for (int64_t m = m0; m < m1;) {
    const int64_t take = m1 - m >= kGemvRows ? kGemvRows : 1;
    to_float_rows(ptr.x + m * p.k, take, p.k, x);
    for (int64_t n = 0; n < columns; ++n) {
      if (!odd[n]) continue;
      if (take == kGemvRows)
        dot_column<kGemvRows>(p, ptr, x, m, n0 + n);
      else
        dot_column<1>(p, ptr, x, m, n0 + n);
    }
    m += take;
  }
}

// A tile of accumulators [rows of the weight][Kernel::kColumns rows of x] to out, with the bias.
template <typename Kernel, typename T>
void finish_tile(const Mxfp8LinearProblem& p, const LinearPointers<T>& ptr, const float* tile, int64_t n0, int64_t n1,
                 int64_t m0, int64_t m1) {
  for (int64_t n = n0; n < n1; n += kLanes) {
    const int64_t columns = smaller(kLanes, n1 - n);
    float bias[kLanes] = {};
    if (ptr.bias)
      for (int64_t i = 0; i < columns; ++i) bias[i] = to_float(ptr.bias[(n + i) * p.bias_stride]);
    for (int64_t m = m0; m < m1; m += kLanes) {
      vf square[kLanes];
      for (int i = 0; i < kLanes; ++i) square[i] = load(tile + (n - n0 + i) * Kernel::kColumns + (m - m0));
      transpose(square);
      for (int64_t i = 0; i < smaller(kLanes, m1 - m); ++i)
        store_first(ptr.out + (m + i) * p.n + n, square[i] + load(bias), columns);
    }
  }
}

// What a thread works on: rows [n0, n1) of the weight against panels [first, last) of x, of which row m0 is the first.
// `depth` columns are decoded at once.
struct Mxfp8Task {
  int64_t n0, n1, depth, m0, rows, first, last;
};

// The weight's rows behind a task's, most often the next to be decoded: a tile may fetch them while it multiplies. Null
// where there are less than a tile of them.
struct Ahead {
  const uint8_t* rows;
  int64_t stride;
};

template <typename Kernel, typename T>
void run_task(const Mxfp8LinearProblem& p, const LinearPointers<T>& ptr, const Mxfp8Task& task,
              const typename Kernel::Element* packed, typename Kernel::Element* decoded, float* tiles) {
  const int64_t k_padded = round_up(p.k, Kernel::kGroup), panel_size = k_padded * Kernel::kPerColumn;
  const int64_t depth = task.depth;
  const int64_t stride = Kernel::stride(smaller(depth, k_padded));
  const int64_t tile_size = round_up(Kernel::kRows, kTurn) * Kernel::kColumns;
  const bool one_pass = p.k <= depth;
  bool odd[kMostRows] = {};
  for (int64_t k = 0; k < p.k; k += depth) {
    const int64_t take = smaller(depth, p.k - k);
    for (int64_t i = 0; i < round_up(task.n1 - task.n0, Kernel::kRows); ++i) {
      const int64_t n = smaller(task.n0 + i, task.n1 - 1);  // what is spare in the last tile holds its last row
      odd[n - task.n0] |=
          !Kernel::decode(ptr.weight + n * p.weight_stride + k, ptr.scale + n * p.weight_scale_stride + k / kMxBlock,
                          take, Kernel::row(decoded, i, stride));
    }
    const Ahead ahead{task.n1 + Kernel::kRows <= p.n ? ptr.weight + task.n1 * p.weight_stride : nullptr,
                      p.weight_stride};
    float* tile = tiles;
    for (int64_t i = task.first; i < task.last; ++i) {
      const int64_t m = i * Kernel::kColumns, rows = smaller(Kernel::kColumns, task.rows - m);
      const auto* x = packed + i * panel_size + k * Kernel::kPerColumn;
      for (int64_t n = task.n0; n < task.n1; n += Kernel::kRows, tile += one_pass ? 0 : tile_size) {
        Kernel::multiply(decoded + (n - task.n0) * stride, stride, x, rows, round_up(take, Kernel::kGroup), tile, k > 0,
                         i == task.first ? ahead : Ahead{});
        if (k + take < p.k) continue;
        finish_tile<Kernel>(p, ptr, tile, n, smaller(n + Kernel::kRows, task.n1), task.m0 + m, task.m0 + m + rows);
      }
    }
  }
  odd_columns(p, ptr, odd, task.n0, task.n1 - task.n0, task.m0 + task.first * Kernel::kColumns,
              task.m0 + smaller(task.last * Kernel::kColumns, task.rows));
}

template <typename Kernel, typename T>
void gemm(const Mxfp8LinearProblem& p, const LinearPointers<T>& ptr) {
  using Element = typename Kernel::Element;
  const int64_t k_padded = round_up(p.k, Kernel::kGroup), panel_size = k_padded * Kernel::kPerColumn;
  const int64_t most_panels = (smaller(p.m, kRowsAtOnce) + Kernel::kColumns - 1) / Kernel::kColumns;
  const Buffer<Element> packed(most_panels * panel_size);
  const int64_t threads = torch::stable::get_num_threads();
  for (int64_t m0 = 0; m0 < p.m; m0 += kRowsAtOnce) {
    const int64_t rows = smaller(kRowsAtOnce, p.m - m0), panels = (rows + Kernel::kColumns - 1) / Kernel::kColumns;
    torch::stable::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        Kernel::pack(ptr.x + (m0 + i * Kernel::kColumns) * p.k, smaller(Kernel::kColumns, rows - i * Kernel::kColumns),
                     p.k, packed.get() + i * panel_size);
    });

    const int64_t share = round_up((p.n + 4 * threads - 1) / (4 * threads), Kernel::kRows);
    // For few rows of x most of the time is the memory's: each tile's rows of the weight are then read from end to end,
    // since strips of rows, each shorter than a page, are not what the hardware prefetches.
    const bool few = panels <= 2;
    const int64_t depth = few ? Kernel::kDepthForFew : Kernel::kDepth;
    const int64_t height = few ? Kernel::kRows : smaller(Kernel::kHeight, share);
    const int64_t stripes = (p.n + height - 1) / height;
    const int64_t splits = smaller(panels, (2 * threads + stripes - 1) / stripes);
    torch::stable::parallel_for(0, stripes * splits, 1, [&](int64_t begin, int64_t end) {
      const Buffer<Element> decoded(height * Kernel::stride(smaller(depth, k_padded)));
      const int64_t tile_size = round_up(Kernel::kRows, kTurn) * Kernel::kColumns;
      const Buffer<float> tiles(tile_size * (p.k <= depth ? 1 : panels * (height / Kernel::kRows)));
      const typename Kernel::Session session;
      for (int64_t t = begin; t < end; ++t) {
        const int64_t n0 = t / splits * height, split = t % splits;
        const Mxfp8Task task{
            n0, smaller(n0 + height, p.n), depth, m0, rows, panels * split / splits, panels * (split + 1) / splits};
        run_task<Kernel>(p, ptr, task, packed.get(), decoded.get(), tiles.get());
      }
    });
  }
}

}  // namespace mtl4::cpu::MTL4_ISA
