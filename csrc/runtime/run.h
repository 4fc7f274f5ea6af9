// Runs plans on tensors of the MPS device. Plain C++: what an op's file needs, and nothing of Metal.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <vector>

#include "plan/device_caps.h"
#include "plan/plan.h"

namespace mtl4::runtime {

// A tensor of the call under the name by which the plan's passes know it, or an optional one that is not there.
struct Operand {
  const char* name;
  const torch::stable::Tensor* tensor;

  Operand(const char* name_, const torch::stable::Tensor& t) : name(name_), tensor(&t) {}
  Operand(const char* name_, const std::optional<torch::stable::Tensor>& t) : name(name_), tensor(t ? &*t : nullptr) {}
};

// Of the device that holds the tensor, which has elements.
const DeviceCaps& device_caps(const torch::stable::Tensor& on_mps);

// Encodes every pass on torch's current stream and returns; nothing waits. Throws before anything is encoded if a
// kernel cannot be built, or an operand is not what the plan says.
void run(const KernelPlan& plan, const std::vector<Operand>& operands);

}  // namespace mtl4::runtime
