// The functions of torch's MPS stream that csrc/runtime calls, which torch for Linux does not have.
#import <Metal/Metal.h>
#include <torch/csrc/inductor/aoti_torch/c/shim_mps.h>

#include <mutex>
#include <stdexcept>
#include <string>

#include "interface.h"

namespace {
std::mutex queue;
thread_local bool on_queue = false;
}  // namespace

bool software_metal_on_queue() { return on_queue; }

namespace at::mps {

class MPSStream {
 public:
  __attribute__((visibility("default"))) id<MTLComputeCommandEncoder> commandEncoder();
};

id<MTLComputeCommandEncoder> MPSStream::commandEncoder() {
  if (!on_queue) throw std::runtime_error("software Metal: torch's encoder is taken outside of its queue");
  return (id<MTLComputeCommandEncoder>)software_metal_torch_encoder();
}

__attribute__((visibility("default"))) MPSStream* getCurrentMPSStream() {
  static MPSStream stream;
  return &stream;
}

}  // namespace at::mps

extern "C" {

AOTITorchError aoti_torch_mps_create_shader_library(const char* source, AOTIMetalShaderLibraryHandle* library) {
  *library = reinterpret_cast<AOTIMetalShaderLibraryHandle>(new std::string(source));
  return 0;
}

AOTITorchError aoti_torch_mps_get_kernel_function(AOTIMetalShaderLibraryHandle library, const char* name,
                                                  AOTIMetalKernelFunctionHandle* function) {
  if (reinterpret_cast<std::string*>(library)->find(name) == std::string::npos) return 1;
  *function = reinterpret_cast<AOTIMetalKernelFunctionHandle>(library);
  return 0;
}

AOTITorchError aoti_torch_mps_run_command_block(AOTIMetalKernelFunctionHandle function,
                                                aoti_torch_mps_command_block_callback_t block, void* data) {
  if (on_queue) throw std::runtime_error("software Metal: a command block inside another, which would never end");
  const std::lock_guard<std::mutex> lock(queue);
  struct OnQueue {
    OnQueue() { on_queue = true; }
    ~OnQueue() { on_queue = false; }
  } here;
  @autoreleasepool {
    block(function, data);
  }
  return 0;
}
}
