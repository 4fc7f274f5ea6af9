// Compiled kernels, each built once for each device.
#pragma once

#import <Metal/Metal.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace mtl4::runtime {

// All that a pipeline depends on.
struct PipelineKey {
  std::string source;
  Language language;
  std::string kernel;
  std::vector<FunctionConstant> constants;
  std::string text{};  // in place of that of `source`
};

// "mxfp8_linear/mxfp8_linear_half [causal=1] in Metal 4.0", for errors.
std::string to_string(const PipelineKey& key);

// Of a whole source in its language: none of its kernels can be had.
struct SourceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The pipeline lives as long as the process. Throws what Metal's compiler says, below the key.
id<MTLComputePipelineState> pipeline(id<MTLDevice> device, const PipelineKey& key);

}  // namespace mtl4::runtime
