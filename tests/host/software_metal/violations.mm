// Code that breaks one rule each, to prove that software Metal notices.
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <torch/csrc/inductor/aoti_torch/c/shim_mps.h>

#include <exception>
#include <functional>
#include <map>
#include <string>

#include "interface.h"

namespace at::mps {
class MPSStream {
 public:
  id<MTLComputeCommandEncoder> commandEncoder();
};
MPSStream* getCurrentMPSStream();
}  // namespace at::mps

namespace {

using Encoder = id<MTLComputeCommandEncoder>;

Encoder taken() { return at::mps::getCurrentMPSStream()->commandEncoder(); }

void on_queue(const std::function<void()>& encode) {
  struct Call {
    const std::function<void()>& encode;
    std::exception_ptr error;
  } call{encode, nullptr};
  const auto block = [](AOTIMetalKernelFunctionHandle, void* data) {
    auto& c = *static_cast<Call*>(data);
    try {
      c.encode();
    } catch (...) {
      c.error = std::current_exception();
    }
  };
  aoti_torch_mps_run_command_block(nullptr, block, &call);
  if (call.error) std::rethrow_exception(call.error);
}

id<MTLDevice> device() { return [MTLCopyAllDevices() objectAtIndex:0]; }

id<MTLBuffer> buffer() { return [device() newBufferWithLength:64 options:MTLResourceStorageModeShared]; }

// A kernel that takes buffer 0, up to 64 threads.
id<MTLComputePipelineState> pipeline() {
  MTLCompileOptions* options = [MTLCompileOptions new];
  options.languageVersion = MTLLanguageVersion3_1;
  options.mathMode = MTLMathModeSafe;
  NSString* text =
      @"#include <metal_stdlib>\nusing namespace metal;\n[[max_total_threads_per_threadgroup(64)]]\n"
       "kernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1.0f; }\n";
  id<MTLLibrary> library = [device() newLibraryWithSource:text options:options error:nullptr];
  id<MTLFunction> function = [library newFunctionWithName:@"k"
                                           constantValues:[MTLFunctionConstantValues new]
                                                    error:nullptr];
  return [device() newComputePipelineStateWithFunction:function error:nullptr];
}

void dispatch(Encoder encoder, NSUInteger groups, NSUInteger threads) {
  [encoder dispatchThreadgroups:MTLSizeMake(groups, 1, 1) threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
}

const std::map<std::string, std::function<void()>> kCases = {
    {"nothing wrong",
     [] {
       on_queue([] {
         [taken() setComputePipelineState:pipeline()];
         [taken() setBuffer:buffer() offset:0 atIndex:0];
         dispatch(taken(), 1, 16);
       });
     }},
    {"off the queue", [] { taken(); }},
    {"kept beyond the block",
     [] {
       Encoder kept = nil;
       on_queue([&] { kept = taken(); });
       [kept setComputePipelineState:pipeline()];
     }},
    {"block in a block", [] { on_queue([] { on_queue([] {}); }); }},
    {"memory in a block", [] { on_queue([] { software_metal_new_buffer(4); }); }},
    {"end of torch's encoder", [] { on_queue([] { [taken() endEncoding]; }); }},
    {"no pipeline",
     [] { on_queue([] { dispatch([[device() newCommandQueue] commandBuffer].computeCommandEncoder, 1, 1); }); }},
    {"slot 31", [] { on_queue([] { [taken() setBuffer:buffer() offset:0 atIndex:31]; }); }},
    {"offset", [] { on_queue([] { [taken() setBuffer:buffer() offset:64 atIndex:0]; }); }},
    {"many bytes",
     [] {
       on_queue([] {
         const char bytes[4097] = {};
         [taken() setBytes:bytes length:sizeof bytes atIndex:0];
       });
     }},
    {"not bound",
     [] {
       on_queue([] {
         [taken() setComputePipelineState:pipeline()];
         [taken() setBuffer:buffer() offset:0 atIndex:0];
         [taken() setComputePipelineState:pipeline()];
         dispatch(taken(), 1, 16);
       });
     }},
    {"many threads",
     [] {
       on_queue([] {
         [taken() setComputePipelineState:pipeline()];
         [taken() setBuffer:buffer() offset:0 atIndex:0];
         dispatch(taken(), 1, 65);
       });
     }},
    {"no groups",
     [] {
       on_queue([] {
         [taken() setComputePipelineState:pipeline()];
         [taken() setBuffer:buffer() offset:0 atIndex:0];
         dispatch(taken(), 0, 16);
       });
     }},
    {"beyond the buffer",
     [] {
       on_queue([] {
         [taken() setComputePipelineState:pipeline()];
         [taken() setBuffer:buffer() offset:4 atIndex:0];
         dispatch(taken(), 1, 16);
       });
     }},
    {"fast mathematics",
     [] {
       MTLCompileOptions* options = [MTLCompileOptions new];
       options.languageVersion = MTLLanguageVersion3_1;
       NSError* error = nil;
       if (![device() newLibraryWithSource:@"kernel void k() {}" options:options error:&error])
         throw std::runtime_error(error.localizedDescription.UTF8String);
     }},
};

}  // namespace

// What software Metal said; empty where it said nothing, nullptr where there is no such case.
extern "C" __attribute__((visibility("default"))) const char* software_metal_violate(const char* name) {
  static std::string said;
  const auto found = kCases.find(name);
  if (found == kCases.end()) return nullptr;
  @autoreleasepool {
    said.clear();
    try {
      found->second();
    } catch (const std::exception& error) {
      said = error.what();
    }
  }
  return said.c_str();
}
