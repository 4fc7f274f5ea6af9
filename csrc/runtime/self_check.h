// Whether a device computes what it should, tried once with a small product: some systems build a kernel and then
// deal out its cooperative tensors in another way.
#pragma once

#import <Metal/Metal.h>

#include <string>

#include "plan/plan.h"

namespace mtl4::runtime {

// Why the kernel of that name (metal/self_check) cannot be relied on, or nothing. Runs on a queue of its own and waits.
std::string failed_self_check(id<MTLDevice> device, const std::string& kernel, Language language);

}  // namespace mtl4::runtime
