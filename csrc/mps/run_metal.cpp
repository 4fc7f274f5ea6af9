// MPS implementation of run_metal: contract, plan, run.
#include "ops/run_metal.h"

#include <torch/csrc/stable/library.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "plan/plan.h"
#include "runtime/run.h"

namespace mtl4::mps {
namespace {

using torch::stable::Tensor;

constexpr int kTensorsSince = 26;  // macOS: MSL 4.0

KernelPlan plan_of(const RunMetalProblem& p, const std::string& kernel, std::string text,
                   const std::vector<std::string>& names) {
  Pass pass{.kernel = kernel,
            .constants = {},
            .arguments = {},
            .params_index = static_cast<int>(names.size()),
            .params = {},
            .groups = {},
            .threads = p.threadgroup,
            .grid = p.grid};
  for (const std::string& name : names) pass.arguments.push_back({static_cast<int>(pass.arguments.size()), name});
  pass.params.resize(p.layout.size() * sizeof(int32_t));
  std::memcpy(pass.params.data(), p.layout.data(), pass.params.size());
  return {.source = "custom",
          .language = Language::metal4_0,
          .scratch = {},
          .passes = {std::move(pass)},
          .text = std::move(text)};
}

void run_metal(std::string kernel, std::string text, std::vector<Tensor> tensors, std::vector<int64_t> grid,
               std::vector<int64_t> threadgroup) {
  const RunMetalProblem p = check_run_metal(kernel, tensors, grid, threadgroup);
  const auto some = std::ranges::find_if(tensors, [](const Tensor& t) { return t.numel() > 0; });
  STD_TORCH_CHECK(some != tensors.end(), "run_metal: expected tensors of ", kernel, " with elements, got none");
  const DeviceCaps& caps = runtime::device_caps(*some);
  STD_TORCH_CHECK(caps.macos_major >= kTensorsSince, "run_metal: expected macOS ", kTensorsSince,
                  " or newer, which has MSL 4.0, got macOS ", caps.macos_major, ".", caps.macos_minor);
  std::vector<std::string> names;
  for (size_t i = 0; i < tensors.size(); ++i) names.push_back("tensors[" + std::to_string(i) + "]");
  std::vector<runtime::Operand> operands;
  for (size_t i = 0; i < tensors.size(); ++i) operands.emplace_back(names[i].c_str(), tensors[i]);
  runtime::run(plan_of(p, kernel, std::move(text), names), operands);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(torch_mtl4, MPS, m) { m.impl("run_metal", TORCH_BOX(&run_metal)); }

}  // namespace mtl4::mps
