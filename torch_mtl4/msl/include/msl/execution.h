// Execution scopes of tensor operations.
#pragma once
#include "scalar.h"
namespace metal {
template <int N> struct execution_threads {
  static constexpr int threads = N;
  static constexpr int simdgroups = 0;
};
template <int N> struct execution_simdgroups {
  static constexpr int threads = 32 * N;
  static constexpr int simdgroups = N;
};
using execution_thread = execution_threads<1>;
using execution_simdgroup = execution_simdgroups<1>;
} // namespace metal
