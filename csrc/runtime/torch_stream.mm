#include "runtime/torch_stream.h"

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim_mps.h>
#include <torch/csrc/stable/macros.h>
#include <torch/headeronly/util/Exception.h>
#include <torch/headeronly/util/shim_utils.h>

#include <exception>

namespace mtl4::runtime {
namespace {

// The stable ABI gives the queue of a stream, but not its encoder. Two C++ functions of torch do. They are looked up
// when they are first needed and not linked, so that a torch without them still loads the CPU ops.
constexpr const char* kCurrentStream = "_ZN2at3mps19getCurrentMPSStreamEv";
constexpr const char* kCommandEncoder = "_ZN2at3mps9MPSStream14commandEncoderEv";

struct StreamFunctions {
  void* (*current_stream)() = nullptr;                               // at::mps::getCurrentMPSStream()
  id<MTLComputeCommandEncoder> (*command_encoder)(void*) = nullptr;  // at::mps::MPSStream::commandEncoder(), of `this`
  std::string missing;
};

StreamFunctions find_stream_functions() {
  // In the image that holds the C functions of the same device, whatever scope it was loaded into.
  StreamFunctions found;
  Dl_info info;
  void* const image = dladdr(reinterpret_cast<void*>(&aoti_torch_mps_run_command_block), &info)
                          ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD)
                          : nullptr;
  const auto find = [&](const char* name) {
    void* const function = image ? dlsym(image, name) : nullptr;
    if (!function) found.missing += (found.missing.empty() ? "this torch does not have " : " and ") + std::string(name);
    return function;
  };
  found.current_stream = reinterpret_cast<decltype(found.current_stream)>(find(kCurrentStream));
  found.command_encoder = reinterpret_cast<decltype(found.command_encoder)>(find(kCommandEncoder));
  return found;
}

const StreamFunctions& stream_functions() {
  static const StreamFunctions found = find_stream_functions();
  return found;
}

// run_command_block wants a kernel of torch's own; it is never dispatched.
AOTIMetalKernelFunctionHandle anchor() {
  static const AOTIMetalKernelFunctionHandle function = [] {
    AOTIMetalShaderLibraryHandle library = nullptr;
    AOTIMetalKernelFunctionHandle kernel = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_mps_create_shader_library("kernel void torch_mtl4_anchor() {}", &library));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_mps_get_kernel_function(library, "torch_mtl4_anchor", &kernel));
    return kernel;
  }();
  return function;
}

}  // namespace

std::string missing_from_torch() { return stream_functions().missing; }

void on_stream(const std::function<void(id<MTLComputeCommandEncoder>)>& encode) {
  STD_TORCH_CHECK(stream_functions().missing.empty(), "torch_mtl4: ", stream_functions().missing,
                  ", which its MPS ops need; CPU ops work");
  struct Call {
    const std::function<void(id<MTLComputeCommandEncoder>)>& encode;
    std::exception_ptr error;
  } call{encode, nullptr};
  const auto block = [](AOTIMetalKernelFunctionHandle, void* data) {
    auto& c = *static_cast<Call*>(data);
    try {
      c.encode(stream_functions().command_encoder(stream_functions().current_stream()));
    } catch (...) {
      c.error = std::current_exception();  // not through C
    }
  };
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_mps_run_command_block(anchor(), block, &call));
  if (call.error) std::rethrow_exception(call.error);
}

}  // namespace mtl4::runtime
