// What a device is asked before kernels are given to it: small problems with one right answer, for the kernels of
// metal/self_check. Plain C++: what is asked, of which kernel, and what must come out.
#pragma once

#include <torch/headeronly/core/ScalarType.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace mtl4::runtime {

using Bytes = std::vector<uint8_t>;

template <typename T>
Bytes bytes_of_all(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// What a kernel has to write, as elements of a type. NaN is equal to NaN.
struct Result {
  torch::headeronly::ScalarType type;
  Bytes want;
  bool bit_for_bit = true;  // if not, zero may have either sign
};

struct SelfCheck {
  std::string what;
  std::string kernel;
  Language language;
  std::vector<std::string> needed_by;  // what does not work without it, in words of DeviceCaps::without
  std::vector<FunctionConstant> constants = {};
  std::vector<Bytes> given = {};     // bound from buffer 0 on
  std::vector<Result> results = {};  // bound behind them
  std::array<int64_t, 3> groups = {1, 1, 1}, threads = {32, 1, 1};
};

// In the order of the languages. Results come from the CPU's own codec, at the time of the call.
void add_codec_checks(std::vector<SelfCheck>& checks, Language language);
void add_linear_checks(std::vector<SelfCheck>& checks, Language language);
void add_attention_checks(std::vector<SelfCheck>& checks, Language language);

// Numbers of a small range without a pattern that a permutation could keep.
class SmallNumbers {
 public:
  explicit SmallNumbers(uint32_t seed) : state_(seed * 2654435761u + 1) {}
  // A whole number from -most to most.
  int next(int most) {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<int>((state_ >> 16) % static_cast<uint32_t>(2 * most + 1)) - most;
  }

 private:
  uint32_t state_;
};

}  // namespace mtl4::runtime
