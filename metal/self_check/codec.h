// The codec: every code under every scale, and values at the edges of the formats.
#pragma once

#include "common/mx.h"
#include "mxfp8_dequantize/params.h"
#include "mxfp8_quantize/params.h"
// The bodies of several ops in one text: each has the name for its own params while it is read.
#define ParamsRef constant Mxfp8DequantizeParams&
#include "mxfp8_dequantize/kernel.h"
#undef ParamsRef
#define ParamsRef constant Mxfp8QuantizeParams&
#include "mxfp8_quantize/kernel.h"
#undef ParamsRef
#include "self_check/params.h"

// `decoded` is [256 scales, 256 codes]. Codes come in a word with others, of which nothing may be left.
inline void check_decode(device uint* decoded, device uint* rest, uint byte, uint code) {
  const MxScale scale = MxScale(uchar(byte));
  decoded[byte * 256 + code] = as_type<uint>(decode_e4m3(code | 0xb7d5e900, scale.exponent));
  if (code == 0) rest[byte] = as_type<uint>(scale.rest);
}

// The same x in every scaling mode, one result after the other.
template <typename T>
void check_quantize(device const T* x, device uchar* data, device uchar* scale, constant Mxfp8QuantizeParams& params,
                    uint2 group, uint2 position, uint2 threads) {
  constexpr int kBlocks = (SelfCheckQuantize::k + kMxBlock - 1) / kMxBlock;
  for (int mode = 0; mode < SelfCheckQuantize::modes; ++mode)
    quantize_four(x, data + mode * SelfCheckQuantize::rows * SelfCheckQuantize::k,
                  scale + mode * SelfCheckQuantize::rows * kBlocks, params, mode, group, position, threads);
}
