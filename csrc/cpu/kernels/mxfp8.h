// Entries of the mxfp8 kernels, one set per instruction set.
#pragma once

#include "ops/mxfp8.h"

namespace mtl4::cpu {

#define MTL4_DECLARE(isa)                                                                                    \
  namespace isa {                                                                                            \
  void mxfp8_quantize(const Mxfp8CodecProblem& p, const void* x, uint8_t* data, uint8_t* scale);             \
  void mxfp8_dequantize(const Mxfp8CodecProblem& p, const uint8_t* data, const uint8_t* scale, void* out);   \
  void mxfp8_linear(const Mxfp8LinearProblem& p, const void* x, const uint8_t* weight, const uint8_t* scale, \
                    const void* bias, void* out);                                                            \
  }
MTL4_DECLARE(baseline)
MTL4_DECLARE(neon)
MTL4_DECLARE(avx2)
MTL4_DECLARE(avx512)
MTL4_DECLARE(avx512_bf16)
MTL4_DECLARE(amx)
#undef MTL4_DECLARE

}  // namespace mtl4::cpu
