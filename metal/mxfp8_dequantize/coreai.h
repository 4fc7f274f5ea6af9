// The kernel of mxfp8_dequantize in assets of Core AI, called by the texts that export/coreai writes around it.
//
// data [R, K], scale [R, ceil(K / 32)], out [R, K], all dense.
#pragma once

#include "common/coreai.h"
#include "mxfp8_dequantize/params.h"

using ParamsRef = thread const Mxfp8DequantizeParams&;

#include "mxfp8_dequantize/kernel.h"

// WHOLE: without short blocks, so that all rows are one.
template <typename T, bool WHOLE>
struct CoreAiDequantize {
  using Memory = NoMemory;

  static void run(Operand<uchar, 2> data, Operand<uchar, 2> scale, Operand<T, 2> out, threadgroup Memory&,
                  ThreadPlace at) {
    const long rows = data.size[0], k = data.size[1];
    const Mxfp8DequantizeParams params = {WHOLE ? 1 : rows, WHOLE ? rows * k : k, 0, 0};
    dequantize_eight(data.data, scale.data, out.data, params, at.group.xy, at.position.xy, at.threads.xy);
  }
};
