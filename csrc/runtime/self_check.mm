#include "runtime/self_check.h"

#include <array>
#include <exception>

#include "runtime/held.h"
#include "runtime/pipelines.h"
#include "runtime/text.h"
#include "self_check/params.h"

namespace mtl4::runtime {
namespace {

using Sizes = SelfCheckSizes;
constexpr int kBlocks = Sizes::k / Sizes::scale_block;

// Small whole numbers, so that every order of summation gives the same float.
constexpr std::array<uint16_t, 7> kHalves = {0xc200, 0xc000, 0xbc00, 0, 0x3c00, 0x4000, 0x4200};  // -3 to 3
constexpr std::array<uint8_t, 5> kE4m3 = {0xc0, 0xb8, 0, 0x38, 0x40};                             // -2 to 2
int left_value(int m, int k) { return (m * 3 + k * 5) % 7 - 3; }
int right_value(int n, int k) { return (n * 2 + k * 3) % 5 - 2; }
int scale_exponent(int n, int block) { return (n + block) % 3 - 1; }

struct Inputs {
  std::array<uint16_t, Sizes::m * Sizes::k> left;
  std::array<uint16_t, Sizes::n * Sizes::k> right;
  std::array<uint8_t, Sizes::n * Sizes::k> right_e4m3;
  std::array<uint8_t, Sizes::n * kBlocks> scale;

  Inputs() {
    for (int i = 0; i < Sizes::m * Sizes::k; ++i) left[i] = kHalves[left_value(i / Sizes::k, i % Sizes::k) + 3];
    for (int i = 0; i < Sizes::n * Sizes::k; ++i) {
      const int value = right_value(i / Sizes::k, i % Sizes::k);
      right[i] = kHalves[value + 3], right_e4m3[i] = kE4m3[value + 2];
    }
    for (int i = 0; i < Sizes::n * kBlocks; ++i)
      scale[i] = static_cast<uint8_t>(127 + scale_exponent(i / kBlocks, i % kBlocks));
  }
};

float expected(int m, int n, bool scaled) {
  float sum = 0;
  for (int k = 0; k < Sizes::k; ++k) {
    const int exponent = scaled ? scale_exponent(n, k / Sizes::scale_block) : 0;
    const float scale = exponent < 0 ? 0.5f : static_cast<float>(1 << exponent);
    sum += static_cast<float>(left_value(m, k) * right_value(n, k)) * scale;
  }
  return sum;
}

template <typename Array>
Held<id<MTLBuffer>> buffer_with(id<MTLDevice> device, const Array& values) {
  return Held<id<MTLBuffer>>::owned([device newBufferWithBytes:values.data()
                                                        length:sizeof values
                                                       options:MTLResourceStorageModeShared]);
}

std::string run(id<MTLDevice> device, id<MTLComputePipelineState> state, bool scaled) {
  const Inputs inputs;
  std::array<float, Sizes::m * Sizes::n> unwritten;
  unwritten.fill(-1e30f);
  const auto left = buffer_with(device, inputs.left), scale = buffer_with(device, inputs.scale),
             right = scaled ? buffer_with(device, inputs.right_e4m3) : buffer_with(device, inputs.right),
             out = buffer_with(device, unwritten);
  const auto queue = Held<id<MTLCommandQueue>>::owned([device newCommandQueue]);
  if (!left || !scale || !right || !out || !queue) return "there is no memory for a small test";

  id<MTLCommandBuffer> commands = [queue.get() commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  [encoder setComputePipelineState:state];
  [encoder setBuffer:left.get() offset:0 atIndex:0];
  [encoder setBuffer:right.get() offset:0 atIndex:1];
  [encoder setBuffer:out.get() offset:0 atIndex:2];
  if (scaled) [encoder setBuffer:scale.get() offset:0 atIndex:3];
  const MTLSize one_simdgroup = MTLSizeMake(state.threadExecutionWidth, 1, 1);
  [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:one_simdgroup];
  [encoder endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  if (commands.error) return "a small test failed: " + text_of(commands.error);

  const auto* values = static_cast<const float*>([out.get() contents]);
  int wrong = 0;
  for (int i = 0; i < Sizes::m * Sizes::n; ++i) wrong += values[i] != expected(i / Sizes::n, i % Sizes::n, scaled);
  return wrong == 0 ? "" : "a small product has " + std::to_string(wrong) + " wrong elements";
}

}  // namespace

std::string failed_self_check(id<MTLDevice> device, const std::string& kernel, Language language) {
  @autoreleasepool {
    try {
      return run(device, pipeline(device, {"self_check", language, kernel, {}}), kernel == "self_check_scale_planes");
    } catch (const std::exception& error) {
      const std::string text = error.what();
      const size_t own = text.find("torch_mtl4:");  // torch puts the place in the source before it
      return own == std::string::npos ? text : text.substr(own);
    }
  }
}

}  // namespace mtl4::runtime
