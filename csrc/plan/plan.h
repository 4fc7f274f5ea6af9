// A plan: which kernels run, over which grids, with which arguments. Plain data, made from a Problem and DeviceCaps
// alone: no tensor, no Metal object, no clock.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace mtl4 {

// Of a kernel's source, as Metal's compiler is asked for it.
enum class Language { metal3_1 = 31, metal4_0 = 40, metal4_1 = 41 };

// Names and indices are those of the kernel's source (metal/<op>/params.h).
struct FunctionConstant {
  int index;
  std::string name;
  bool is_bool;
  int32_t value;
};

// A buffer index bound to a tensor of the call or to a scratch buffer of the plan, by name.
struct Argument {
  int index;
  std::string name;
};

// One dispatch. `params` goes to the kernel as bytes, at most 4 KiB of them.
struct Pass {
  std::string kernel;
  std::vector<FunctionConstant> constants;
  std::vector<Argument> arguments;
  int params_index;
  std::vector<uint8_t> params;
  std::array<int64_t, 3> groups;   // threadgroups per grid
  std::array<int64_t, 3> threads;  // threads per threadgroup
  std::array<int64_t, 3> grid{};   // threads per grid, in place of groups: those at the far edges may be smaller
};

// Memory that lives as long as the call.
struct Scratch {
  std::string name;
  int64_t bytes;
};

// Passes run one after the other; each sees what those before it wrote.
struct KernelPlan {
  std::string source;  // metal/<source>/<source>.metal; with a text, what errors call it
  Language language = Language::metal3_1;
  std::vector<Scratch> scratch;
  std::vector<Pass> passes;
  std::string text{};  // MSL of the plan itself, in place of a file of metal/
};

template <typename T>
std::vector<uint8_t> bytes_of(const T& params) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 4096);
  std::vector<uint8_t> bytes(sizeof params);
  std::memcpy(bytes.data(), &params, sizeof params);
  return bytes;
}

// JSON, in one line for each part: for golden tests, for the MSL runner and for people.
std::string to_json(const KernelPlan& plan);

}  // namespace mtl4
