// What simdgroup and quadgroup operations share: the lanes that execute one meet, and the last of them works for all.
#pragma once
#include "math.h"
namespace msl {
constexpr int SIMD = 32, QUAD = 4;

template <class T> struct Lane { // what a lane brings, and what it gets
  T in, out;
  int argument;
};

template <class T> struct Lanes {
  void **payload;
  unsigned mask;
  Lane<T> &operator[](int i) const { return *(Lane<T> *)payload[i]; }
  bool active(int i) const { return mask >> i & 1; }
  template <class F> void each(F f) const {
    for (unsigned m = mask; m; m &= m - 1) f(__builtin_ctz(m));
  }
};

// Op::run(Lanes<T>) sets `out` of every active lane; without that a lane keeps its own value.
template <class Op, class T> struct LaneOperation {
  MSL_UNCHECKED __attribute__((noinline)) static void run(void **payload, unsigned mask) {
    Op::run(Lanes<T>{payload, mask});
  }
};
template <class Op, class T> MSL_INLINE T lane_operation(const char *name, T x, int argument = 0) {
  Lane<T> lane{x, x, argument};
  msl_simd_op(MSL_OP_ANY, name, &lane, LaneOperation<Op, T>::run);
  return lane.out;
}
} // namespace msl
