// Execution scopes of tensor operations: one thread, or whole simdgroups. There is no scope for "the threadgroup".
#pragma once
#include "scalar.h"
namespace metal {
template <int N> struct execution_threads {
  static constexpr int threads = N, simdgroups = 0;
};
template <int N> struct execution_simdgroups {
  static constexpr int threads = 32 * N, simdgroups = N;
};
struct execution_dthreads {}; // sizes known only at run time: no operation of ours takes them
struct execution_dsimdgroups {};
using execution_thread = execution_threads<1>;
using execution_simdgroup = execution_simdgroups<1>;

template <class T> constexpr bool is_execution_scope_v = false;
template <int N> constexpr bool is_execution_scope_v<execution_threads<N>> = true;
template <int N> constexpr bool is_execution_scope_v<execution_simdgroups<N>> = true;
} // namespace metal
