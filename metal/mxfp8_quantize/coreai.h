// The kernel of mxfp8_quantize in assets of Core AI. The texts that export/coreai writes around it define `scaling`.
//
// x [R, K], data [R, K], scale [R, ceil(K / 32)], all dense.
#pragma once

#include "common/coreai.h"
#include "mxfp8_quantize/params.h"

using ParamsRef = thread const Mxfp8QuantizeParams&;

#include "mxfp8_quantize/kernel.h"

// WHOLE: without short blocks, so that all rows are one.
template <typename T, bool WHOLE>
struct CoreAiQuantize {
  using Memory = NoMemory;

  static void run(Operand<T, 2> x, Operand<uchar, 2> data, Operand<uchar, 2> scale, threadgroup Memory&,
                  ThreadPlace at) {
    const Mxfp8QuantizeParams params = {WHOLE ? 1 : x.size[0], WHOLE ? x.size[0] * x.size[1] : x.size[1], 0, 0};
    quantize_four(static_cast<device const T*>(x.data), data.data, scale.data, params, scaling, at.group.xy,
                  at.position.xy, at.threads.xy);
  }
};
