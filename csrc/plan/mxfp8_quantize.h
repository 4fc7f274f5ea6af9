// Which kernel quantizes.
#pragma once

#include "ops/mxfp8_problem.h"
#include "plan/device_caps.h"
#include "plan/plan.h"

namespace mtl4 {

KernelPlan plan_mxfp8_quantize(const Mxfp8CodecProblem& problem, const DeviceCaps& caps);

}  // namespace mtl4
