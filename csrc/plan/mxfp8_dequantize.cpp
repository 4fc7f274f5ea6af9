#include "plan/mxfp8_dequantize.h"

#include "mxfp8_dequantize/params.h"
#include "plan/words.h"

namespace mtl4 {

KernelPlan plan_mxfp8_dequantize(const Mxfp8CodecProblem& p, const DeviceCaps&) {
  constexpr int64_t kPerThread = 4, kThreads = 64;
  KernelPlan plan{"mxfp8_dequantize", Language::metal3_1, {}, {}};
  plan.passes.push_back({.kernel = "mxfp8_dequantize_" + type_name(p.dtype),
                         .constants = {},
                         .arguments = {{0, "data"}, {1, "scale"}, {2, "out"}},
                         .params_index = 3,
                         .params = bytes_of(Mxfp8DequantizeParams{p.rows, p.k}),
                         .groups = {ceil_div(p.k, kPerThread * kThreads), p.rows, 1},
                         .threads = {kThreads, 1, 1}});
  return plan;
}

}  // namespace mtl4
