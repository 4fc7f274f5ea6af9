// Which kernels compute attention.
#pragma once

#include "ops/flash_attention_problem.h"
#include "plan/device_caps.h"
#include "plan/plan.h"

namespace mtl4 {

// out is laid out as [B, Lq, H, Dv]. The last dimension of query, key and value must be dense, and an additive mask is
// float32, float16 or bfloat16: Metal has no float64. Throws std::invalid_argument where that is not so.
KernelPlan plan_flash_attention(const FlashAttentionProblem& problem, const DeviceCaps& caps);

}  // namespace mtl4
