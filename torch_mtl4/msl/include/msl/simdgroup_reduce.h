// metal_simdgroup, metal_quadgroup: reductions and prefix operations over the active lanes.
#pragma once
#include "lanes.h"
namespace msl {
struct Sum {
  template <class T> static T of(T a, T b) { return T(a + b); }
  template <class T> static T identity() { return T(0); }
};
struct Product {
  template <class T> static T of(T a, T b) { return T(a * b); }
  template <class T> static T identity() { return T(1); }
};
// MSL has no min and max of bfloat, but reductions of it.
template <class F, class T> MSL_INLINE T in_float(F f, T a, T b) {
  if constexpr (__is_same(T, bfloat)) return (bfloat)f((float)a, (float)b);
  else if constexpr (metal::is_vec_<T>::value) {
    for (unsigned i = 0; i < sizeof(a.d) / sizeof(a.d[0]); i++) a.d[i] = in_float(f, a.d[i], b.d[i]);
    return a;
  } else return f(a, b);
}
struct Minimum {
  template <class T> static T of(T a, T b) {
    return in_float([](auto x, auto y) { return metal::min(x, y); }, a, b);
  }
};
struct Maximum {
  template <class T> static T of(T a, T b) {
    return in_float([](auto x, auto y) { return metal::max(x, y); }, a, b);
  }
};
struct And {
  template <class T> static T of(T a, T b) { return T(a & b); }
};
struct Or {
  template <class T> static T of(T a, T b) { return T(a | b); }
};
struct Xor {
  template <class T> static T of(T a, T b) { return T(a ^ b); }
};

// Halves at a time: lane i takes in lane i + WIDTH/2, and so on. Lanes that do not take part are passed over.
template <int WIDTH, class Op> struct Reduction {
  template <class T> MSL_UNCHECKED static void run(const Lanes<T> &lanes) {
    T value[SIMD];
    unsigned present = lanes.mask;
    lanes.each([&](int i) { value[i] = lanes[i].in; });
    for (int half = WIDTH / 2; half; half /= 2)
      for (int i = 0; i < SIMD; i++) {
        int other = i + half;
        if ((i & (WIDTH - 1)) >= half || !(present >> other & 1)) continue;
        value[i] = present >> i & 1 ? Op::of(value[i], value[other]) : value[other];
        present |= 1u << i;
      }
    lanes.each([&](int i) { lanes[i].out = value[i & ~(WIDTH - 1)]; });
  }
};

template <int WIDTH, class Op, bool INCLUSIVE> struct Prefix {
  template <class T> MSL_UNCHECKED static void run(const Lanes<T> &lanes) {
    T sum{};
    int group = -1;
    bool any = false;
    lanes.each([&](int i) {
      if (i / WIDTH != group) any = false;
      group = i / WIDTH;
      T with = any ? Op::of(sum, lanes[i].in) : lanes[i].in;
      lanes[i].out = INCLUSIVE ? with : any ? sum : Op::template identity<T>();
      sum = with;
      any = true;
    });
  }
};
template <class T> constexpr bool has_bits = metal::is_integral_v<T>;
template <class T, int N> constexpr bool has_bits<metal::vec<T, N>> = metal::is_integral_v<T>;
} // namespace msl

namespace metal {
#define MSL_REDUCTION(name, OP) \
  template <class T> MSL_INLINE T name(T x) { return msl::lane_operation<msl::OP>(#name, x); }
#define MSL_BITWISE(name, WIDTH, OP) \
  template <class T> requires(msl::has_bits<T>) MSL_INLINE T name(T x) { \
    return msl::lane_operation<msl::Reduction<WIDTH, msl::OP>>(#name, x); \
  }
#define MSL_COMMA ,
#define MSL_REDUCTIONS(prefix, WIDTH) \
  MSL_REDUCTION(prefix##_sum, Reduction<WIDTH MSL_COMMA msl::Sum>) \
  MSL_REDUCTION(prefix##_product, Reduction<WIDTH MSL_COMMA msl::Product>) \
  MSL_REDUCTION(prefix##_min, Reduction<WIDTH MSL_COMMA msl::Minimum>) \
  MSL_REDUCTION(prefix##_max, Reduction<WIDTH MSL_COMMA msl::Maximum>) \
  MSL_REDUCTION(prefix##_prefix_inclusive_sum, Prefix<WIDTH MSL_COMMA msl::Sum MSL_COMMA true>) \
  MSL_REDUCTION(prefix##_prefix_exclusive_sum, Prefix<WIDTH MSL_COMMA msl::Sum MSL_COMMA false>) \
  MSL_REDUCTION(prefix##_prefix_inclusive_product, Prefix<WIDTH MSL_COMMA msl::Product MSL_COMMA true>) \
  MSL_REDUCTION(prefix##_prefix_exclusive_product, Prefix<WIDTH MSL_COMMA msl::Product MSL_COMMA false>) \
  MSL_BITWISE(prefix##_and, WIDTH, And) \
  MSL_BITWISE(prefix##_or, WIDTH, Or) \
  MSL_BITWISE(prefix##_xor, WIDTH, Xor)
MSL_REDUCTIONS(simd, msl::SIMD)
MSL_REDUCTIONS(quad, msl::QUAD)
#undef MSL_REDUCTIONS
#undef MSL_REDUCTION
#undef MSL_BITWISE
#undef MSL_COMMA
} // namespace metal
