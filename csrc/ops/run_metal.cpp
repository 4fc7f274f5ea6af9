#include "ops/run_metal.h"

#include <algorithm>
#include <limits>

#include "ops/check.h"

namespace mtl4 {
namespace {

using torch::stable::Tensor;

constexpr size_t kMostTensors = 30;  // of 31 buffers; the layout has one
constexpr size_t kMostInts = 1024;   // 4 KiB, what setBytes takes

int32_t as_int(int64_t n, const std::string& name, const char* what) {
  MTL4_CHECK("run_metal", n >= 0 && n <= std::numeric_limits<int32_t>::max(), name,
             std::string("with ") + what + " of at most 2^31 - 1", n);
  return static_cast<int32_t>(n);
}

std::array<int64_t, 3> three(const std::vector<int64_t>& sizes, const char* name) {
  MTL4_CHECK("run_metal", sizes.size() == 3 && std::ranges::min(sizes) > 0, name, "of three sizes of at least 1",
             std::to_string(sizes.size()) + " sizes");
  return {sizes[0], sizes[1], sizes[2]};
}

void add_layout(const Tensor& t, const std::string& name, std::vector<int32_t>& layout) {
  int64_t last = 0;  // number of the last element, which a kernel computes in int
  for (int64_t d = t.dim() - 1; d >= 0; --d) layout.push_back(as_int(t.size(d), name, "sizes"));
  for (int64_t d = t.dim() - 1; d >= 0; --d) {
    layout.push_back(as_int(t.stride(d), name, "strides"));
    if (t.numel() > 0) last = as_int(last + (t.size(d) - 1) * t.stride(d), name, "offsets of elements");
  }
}

}  // namespace

RunMetalProblem check_run_metal(const std::string& kernel, const std::vector<Tensor>& tensors,
                                const std::vector<int64_t>& grid, const std::vector<int64_t>& threadgroup) {
  MTL4_CHECK("run_metal", !tensors.empty() && tensors.size() <= kMostTensors, "tensors of " + kernel,
             "1 to " + std::to_string(kMostTensors), tensors.size());
  RunMetalProblem p{{}, three(grid, "grid"), three(threadgroup, "threadgroup")};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = "tensors[" + std::to_string(i) + "]";
    check_same_device("run_metal", tensors[i], name.c_str(), tensors[0], "tensors[0]");
    check_storage("run_metal", tensors[i], name);
    add_layout(tensors[i], name, p.layout);
  }
  MTL4_CHECK("run_metal", p.layout.size() <= kMostInts, "tensors of " + kernel,
             "of at most " + std::to_string(kMostInts / 2) + " dimensions together", p.layout.size() / 2);
  return p;
}

}  // namespace mtl4
