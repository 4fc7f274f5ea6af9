// What the plans of mxfp8_quantize and mxfp8_dequantize share: a grid over rows of blocks.
#pragma once

#include <bit>

#include "ops/mxfp8_problem.h"
#include "plan/plan.h"
#include "plan/words.h"

namespace mtl4 {

// Adds the passes of a kernel whose threads take `per_thread` elements each; `pass` brings its name and its arguments,
// the params are {rows, k, first_row, first_column}.
template <typename Params>
void add_codec_passes(const Mxfp8CodecProblem& p, int64_t per_thread, const Pass& pass, KernelPlan& plan) {
  constexpr int64_t kThreads = 256;
  // Without short blocks all rows are one.
  const bool whole = p.k % kMxBlock == 0;
  const int64_t rows = whole ? 1 : p.rows, k = whole ? p.rows * p.k : p.k;
  const auto threads_a_row = static_cast<uint64_t>(p.blocks() * (kMxBlock / per_thread));
  const int64_t across = whole ? kThreads : std::min(kThreads, static_cast<int64_t>(std::bit_ceil(threads_a_row)));
  const int64_t down = kThreads / across;
  for_each_grid(ceil_div(k, across * per_thread), ceil_div(rows, down),
                [&](int64_t first_x, int64_t first_y, int64_t x, int64_t y) {
                  plan.passes.push_back(pass);
                  plan.passes.back().params = bytes_of(Params{rows, k, first_y * down, first_x * across * per_thread});
                  plan.passes.back().groups = {x, y, 1};
                  plan.passes.back().threads = {across, down, 1};
                });
}

}  // namespace mtl4
