// Whether a device computes what it should, tried once with small problems: some systems build a kernel and then deal
// out its cooperative tensors in another way, or round in another.
#pragma once

#import <Metal/Metal.h>

#include <string>
#include <vector>

#include "plan/plan.h"

namespace mtl4::runtime {

// Of one part of the backend, in a word of DeviceCaps::without.
struct Verdict {
  std::string part;
  Language language;
  std::string failed;  // why the part cannot be relied on; empty if it can
};

// Runs the kernels of metal/self_check in every language up to the newest one that the system knows, on a queue of its
// own and in one command buffer, and waits.
std::vector<Verdict> self_check(id<MTLDevice> device, Language newest);

}  // namespace mtl4::runtime
