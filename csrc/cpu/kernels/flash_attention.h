// Entries of the attention kernel, one pair per instruction set, and how the work is cut into tasks.
#pragma once

#include "ops/flash_attention.h"

namespace mtl4::cpu {

struct FlashAttentionPointers {
  const void *query, *key, *value, *mask;
  const float *sinks, *alibi_slopes;
  void* out;
  float* lse;  // [B, H, Lq], dense
};

// Keys are taken in tiles of kBK that start at multiples of kBK, query rows in blocks of kBQ. Neither these nor the cut
// into tasks depends on the number of threads, and a row's arithmetic depends on nothing but its own keys and whether
// it is one of few.
constexpr int64_t kBQ = 32, kBK = 256, kMaxRowsPerTask = 256;

// A task is a block of query rows against a range of keys of one key head. Short queries of the `fold` heads that share
// a key head are put into one block, [fold, Lq] rows, so that each key and value is read once for all of them.
struct FlashAttentionSchedule {
  int64_t fold;
  int64_t groups, rows;  // groups of heads, B * H / fold; rows of each, fold * Lq
  int64_t rows_per_task, row_blocks;
  int64_t keys_per_split, splits;
  bool unpacked;        // whether keys and values are used where they lie
  int64_t tasks;        // groups * splits * row_blocks
  int64_t partial_row;  // floats of a row's partial result, which are kept where there is more than one split
};

#define MTL4_DECLARE(isa)                                                                                         \
  namespace isa {                                                                                                 \
  /* Sets the number of floats that a worker's scratch, aligned to 64 bytes, must hold. */                        \
  void flash_attention_scratch(const FlashAttentionProblem& p, const FlashAttentionSchedule& s, int64_t* floats); \
  void flash_attention(const FlashAttentionProblem& p, const FlashAttentionPointers& ptr,                         \
                       const FlashAttentionSchedule& s, int64_t task, float* scratch, float* partials);           \
  /* Merges the splits of one of the groups * rows. */                                                            \
  void flash_attention_merge(const FlashAttentionProblem& p, const FlashAttentionPointers& ptr,                   \
                             const FlashAttentionSchedule& s, int64_t row, float* partials);                      \
  }
MTL4_DECLARE(baseline)
MTL4_DECLARE(neon)
MTL4_DECLARE(avx2)
MTL4_DECLARE(avx512)
MTL4_DECLARE(avx512_bf16)
MTL4_DECLARE(amx)
#undef MTL4_DECLARE

}  // namespace mtl4::cpu
