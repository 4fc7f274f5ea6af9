// Torch's own MPS stream: where everything of this package is encoded, in order with torch's own kernels.
#pragma once

#import <Metal/Metal.h>

#include <functional>
#include <string>

namespace mtl4::runtime {

// Calls `encode` on the queue of the current stream with the compute encoder that is open there. What it encodes runs
// after what was encoded before, and sees what that wrote. It must not end the encoder, keep it, or make tensors (which
// would wait for the same queue).
void on_stream(const std::function<void(id<MTLComputeCommandEncoder>)>& encode);

// Why this torch has no such stream, or nothing.
std::string missing_from_torch();

}  // namespace mtl4::runtime
