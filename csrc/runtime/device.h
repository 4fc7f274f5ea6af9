// What a Metal device and its system can do, found out once for each.
#pragma once

#import <Metal/Metal.h>

#include <string>
#include <utility>
#include <vector>

#include "plan/device_caps.h"

namespace mtl4::runtime {

struct DeviceFacts {
  std::string name, architecture;
  DeviceCaps caps;
  std::string no_tensor_ops, no_scale_planes;                // why, where the caps lack them
  std::vector<std::pair<std::string, std::string>> without;  // the parts of DeviceCaps::without, and why
};

// Builds and runs the self-checks at the first call for a device.
const DeviceFacts& facts_of(id<MTLDevice> device);

}  // namespace mtl4::runtime
