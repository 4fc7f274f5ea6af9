// Which kernels multiply with an mxfp8 weight.
#pragma once

#include "ops/mxfp8_problem.h"
#include "plan/device_caps.h"
#include "plan/plan.h"

namespace mtl4 {

KernelPlan plan_mxfp8_linear(const Mxfp8LinearProblem& problem, bool has_bias, const DeviceCaps& caps);

}  // namespace mtl4
