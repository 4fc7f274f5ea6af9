#include "runtime/run.h"

#import <Metal/Metal.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "runtime/device.h"
#include "runtime/pipelines.h"
#include "runtime/torch_stream.h"

namespace mtl4::runtime {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int kBufferSlots = 31;
constexpr size_t kMaxBytes = 4096;

struct Binding {
  id<MTLBuffer> buffer = nil;
  NSUInteger offset = 0;
};

// An MPS storage's data pointer is its MTLBuffer, and a tensor's lies its offset in bytes further. Tensors without
// elements have none: nil.
Binding binding_of(const Tensor& t) {
  if (t.numel() == 0) return {};
  const NSUInteger offset = static_cast<NSUInteger>(t.storage_offset()) * t.element_size();
  const auto* object = static_cast<const char*>(t.const_data_ptr()) - offset;
  return {(id<MTLBuffer>)const_cast<char*>(object), offset};
}

struct EncodedPass {
  id<MTLComputePipelineState> pipeline;
  std::vector<std::pair<NSUInteger, Binding>> buffers;
  const Pass* pass;
};

NSUInteger slot(int index, const std::string& kernel) {
  STD_TORCH_CHECK(index >= 0 && index < kBufferSlots, "torch_mtl4: ", kernel, " is bound at buffer ", index,
                  " of 0 to ", kBufferSlots - 1);
  return static_cast<NSUInteger>(index);
}

MTLSize size_of(const std::array<int64_t, 3>& n) {
  return MTLSizeMake(static_cast<NSUInteger>(n[0]), static_cast<NSUInteger>(n[1]), static_cast<NSUInteger>(n[2]));
}

bool has_grid(const Pass& pass) { return pass.grid[0] > 0; }

// Beyond these a dispatch aborts the process, or covers a part of its grid without a word.
void check_limits(const Pass& pass, id<MTLComputePipelineState> pipeline) {
  const auto& threads = pass.threads;
  const int64_t total = threads[0] * threads[1] * threads[2];
  STD_TORCH_CHECK(
      std::ranges::min(threads) > 0 && total <= static_cast<int64_t>(pipeline.maxTotalThreadsPerThreadgroup),
      "torch_mtl4: ", pass.kernel, " wants ", total, " threads per threadgroup, this GPU runs it with up to ",
      pipeline.maxTotalThreadsPerThreadgroup);
  constexpr int64_t kMaxPosition = std::numeric_limits<uint32_t>::max();
  for (size_t axis = 0; axis < 3; ++axis) {
    if (has_grid(pass)) {
      STD_TORCH_CHECK(pass.grid[axis] > 0 && pass.grid[axis] <= kMaxPosition, "torch_mtl4: ", pass.kernel, " wants ",
                      pass.grid[axis], " threads along axis ", axis, ", a grid has 1 to ", kMaxPosition, " there");
      continue;
    }
    STD_TORCH_CHECK(pass.groups[axis] > 0 && pass.groups[axis] <= kMaxPosition / threads[axis],
                    "torch_mtl4: ", pass.kernel, " wants ", pass.groups[axis], " threadgroups of ", threads[axis],
                    " threads along axis ", axis, ", a grid has 1 to ", kMaxPosition, " threads there");
  }
  STD_TORCH_CHECK(pass.params.size() <= kMaxBytes, "torch_mtl4: ", pass.kernel, " has ", pass.params.size(),
                  " bytes of parameters, at most ", kMaxBytes, " fit");
}

struct Named {
  std::string_view name;
  Binding binding;
};

Binding find(const std::vector<Named>& buffers, const Argument& argument, const std::string& kernel) {
  const auto found = std::ranges::find(buffers, std::string_view(argument.name), &Named::name);
  STD_TORCH_CHECK(found != buffers.end(), "torch_mtl4: ", kernel, " takes '", argument.name,
                  "', which is no operand and no scratch of its plan");
  return found->binding;
}

EncodedPass prepared(const Pass& pass, const KernelPlan& plan, id<MTLDevice> device,
                     const std::vector<Named>& buffers) {
  const PipelineKey key{plan.source, plan.language, pass.kernel, pass.constants, plan.text};
  EncodedPass encoded{pipeline(device, key), {}, &pass};
  check_limits(pass, encoded.pipeline);
  for (const Argument& argument : pass.arguments)
    encoded.buffers.emplace_back(slot(argument.index, pass.kernel), find(buffers, argument, pass.kernel));
  slot(pass.params_index, pass.kernel);
  return encoded;
}

void encode(const EncodedPass& e, id<MTLComputeCommandEncoder> encoder) {
  [encoder setComputePipelineState:e.pipeline];
  // What earlier kernels bound stays bound, so an optional operand that is not there is bound as nil.
  for (const auto& [index, binding] : e.buffers) [encoder setBuffer:binding.buffer offset:binding.offset atIndex:index];
  if (!e.pass->params.empty())
    [encoder setBytes:e.pass->params.data()
               length:e.pass->params.size()
              atIndex:static_cast<NSUInteger>(e.pass->params_index)];
  const MTLSize threads = size_of(e.pass->threads);
  if (has_grid(*e.pass))
    [encoder dispatchThreads:size_of(e.pass->grid) threadsPerThreadgroup:threads];
  else
    [encoder dispatchThreadgroups:size_of(e.pass->groups) threadsPerThreadgroup:threads];
}

}  // namespace

const DeviceCaps& device_caps(const Tensor& on_mps) { return facts_of(binding_of(on_mps).buffer.device).caps; }

void run(const KernelPlan& plan, const std::vector<Operand>& operands) {
  std::vector<Named> buffers;
  const Tensor* some = nullptr;
  for (const Operand& operand : operands) {
    buffers.push_back({operand.name, operand.tensor ? binding_of(*operand.tensor) : Binding{}});
    if (buffers.back().binding.buffer != nil) some = operand.tensor;
  }
  STD_TORCH_CHECK(some != nullptr, "torch_mtl4: a plan of ", plan.source, " runs on no memory at all");

  // Freed when this returns: torch reuses the memory of a stream's tensors in the order of that stream.
  std::vector<Tensor> scratch;
  for (const Scratch& s : plan.scratch) {
    scratch.push_back(torch::stable::new_empty(*some, {s.bytes}, ScalarType::Byte));
    buffers.push_back({s.name, binding_of(scratch.back())});
  }

  const id<MTLDevice> device = binding_of(*some).buffer.device;
  std::vector<EncodedPass> passes;
  for (const Pass& pass : plan.passes) passes.push_back(prepared(pass, plan, device, buffers));
  on_stream([&](id<MTLComputeCommandEncoder> encoder) {
    for (const EncodedPass& pass : passes) encode(pass, encoder);
  });
}

}  // namespace mtl4::runtime
