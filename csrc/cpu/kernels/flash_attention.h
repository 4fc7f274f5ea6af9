// Entry of the attention kernel, one per instruction set.
#pragma once

#include "ops/flash_attention.h"

namespace mtl4::cpu {

struct FlashAttentionPointers {
  const void *query, *key, *value, *mask;
  const float *sinks, *alibi_slopes;
  void* out;
  float* lse;  // [B, H, Lq], dense
};

#define MTL4_DECLARE(isa)                                                                     \
  namespace isa {                                                                             \
  void flash_attention(const FlashAttentionProblem& p, const FlashAttentionPointers& ptr);    \
  }
MTL4_DECLARE(baseline)
MTL4_DECLARE(neon)
MTL4_DECLARE(avx2)
MTL4_DECLARE(avx512)
MTL4_DECLARE(avx512_bf16)
MTL4_DECLARE(amx)
#undef MTL4_DECLARE

}  // namespace mtl4::cpu
