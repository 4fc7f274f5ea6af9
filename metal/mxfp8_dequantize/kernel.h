// Dequantizes rows of MX blocks. A thread takes four elements of one block.
#pragma once

#include "common/mx.h"
#include "mxfp8_dequantize/params.h"

constant constexpr int kDequantizePerThread = 4;

template <typename T>
void dequantize_four(device const uchar* data, device const uchar* scale, device T* out,
                     constant Mxfp8DequantizeParams& params, uint2 position) {
  const long first = long(position.x) * kDequantizePerThread, row = position.y;
  const long blocks = (params.k + kMxBlock - 1) / kMxBlock;
  if (first >= params.k || row >= params.rows) return;
  const E8m0Scale block_scale(scale[row * blocks + first / kMxBlock]);
  const long last = min(first + kDequantizePerThread, long(params.k));
  for (long i = first; i < last; ++i) out[row * params.k + i] = T(block_scale.of(decode_e4m3(data[row * params.k + i])));
}
