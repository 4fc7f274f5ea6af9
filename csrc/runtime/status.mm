// What torch_mtl4.backend_status() reads: one line for each backend, tier or part of one that failed its self-check,
// "<name> <yes or no> <detail>".
#import <Metal/Metal.h>
#include <torch/csrc/stable/library.h>

#include <algorithm>

#include "runtime/device.h"
#include "runtime/held.h"
#include "runtime/torch_stream.h"

namespace mtl4::runtime {
namespace {

std::string line(const std::string& name, bool available, std::string detail) {
  std::ranges::replace(detail, '\n', ' ');
  return name + (available ? " yes " : " no ") + detail + "\n";
}

std::string mps_status() {
  @autoreleasepool {
    if (const std::string missing = missing_from_torch(); !missing.empty()) return line("mps", false, missing);
    const auto devices = Held<NSArray<id<MTLDevice>>*>::owned(MTLCopyAllDevices());
    if (devices.get().count == 0) return line("mps", false, "there is no Metal device");
    const DeviceFacts& facts = facts_of([devices.get() objectAtIndex:0]);
    std::string lines = line("mps", true, facts.name + " (" + facts.architecture + "): " + to_string(facts.caps)) +
                        line("mps.tensor_ops", facts.caps.tensor_ops, facts.no_tensor_ops) +
                        line("mps.scale_planes", facts.caps.scale_planes, facts.no_scale_planes);
    for (const auto& [part, why] : facts.without) lines += line("mps." + part, false, why);
    return lines;
  }
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(torch_mtl4, CompositeExplicitAutograd, m) { m.impl("mps_status", TORCH_BOX(&mps_status)); }

}  // namespace mtl4::runtime
