// metal_simdgroup, metal_quadgroup: every operation is a rendezvous of the lanes that execute it.
#pragma once
#include "math.h"
#include "integer.h"
namespace metal {
template <class T> struct Slot_ {
  T in, out;
  int arg;
};
#define MSL_RV(name, ...) \
  template <class T> struct name##_c { \
    MSL_UNCHECKED __attribute__((noinline)) static void run(void **p_, unsigned mask) { \
      auto L = [&](int i) -> Slot_<T> & { return *(Slot_<T> *)p_[i]; }; \
      (void)L; \
      __VA_ARGS__ \
    } \
  }; \
  template <class T> MSL_INLINE T name##_i(T x, int arg) { \
    Slot_<T> s; \
    s.in = x; \
    s.out = x; \
    s.arg = arg; \
    msl_simd_op(MSL_OP_ANY, &s, name##_c<T>::run); \
    return s.out; \
  }
#define MSL_EACH \
  for (unsigned m_ = mask, i = 0; m_; m_ &= m_ - 1) \
    if (i = __builtin_ctz(m_), true)
// shuffles: reading an inactive lane is undefined in MSL -> reported, value poisoned by its own input
#define MSL_SHUF(name, srcexpr) \
  MSL_RV( \
      name, MSL_EACH { \
        int k = L(i).arg; \
        int s = (srcexpr); \
        if (s < 0 || s > 31) { \
          L(i).out = L(i).in; \
          continue; \
        } \
        if (!(mask >> s & 1)) { \
          msl_report("inactive-lane", #name " reads lane %d which is not active (mask %08x)", s, mask); \
          continue; \
        } \
        L(i).out = L(s).in; \
      })
MSL_SHUF(simd_shuffle, k & 31)
MSL_SHUF(simd_shuffle_xor, ((int)i ^ k) & 31) MSL_SHUF(simd_shuffle_up, (int)i - k)
    MSL_SHUF(simd_shuffle_down, (int)i + k) MSL_SHUF(simd_shuffle_rotate_up, ((int)i - k) & 31)
        MSL_SHUF(simd_shuffle_rotate_down, ((int)i + k) & 31) MSL_SHUF(simd_broadcast, k & 31)
            MSL_SHUF(quad_shuffle, ((int)i & ~3) | (k & 3))
                MSL_SHUF(quad_shuffle_xor, ((int)i & ~3) | (((int)i ^ k) & 3))
                    MSL_SHUF(quad_broadcast, ((int)i & ~3) | (k & 3))
                        MSL_SHUF(quad_shuffle_up, ((int)i & 3) - k < 0 ? -1 : (int)i - k)
                            MSL_SHUF(quad_shuffle_down, ((int)i & 3) + k > 3 ? -1 : (int)i + k)
#define MSL_SHUFW(n) \
  template <class T> MSL_INLINE T n(T x, ushort k) { return n##_i(x, (int)k); }
                                MSL_SHUFW(simd_shuffle) MSL_SHUFW(simd_shuffle_xor) MSL_SHUFW(simd_shuffle_up)
                                    MSL_SHUFW(simd_shuffle_down) MSL_SHUFW(simd_shuffle_rotate_up)
                                        MSL_SHUFW(simd_shuffle_rotate_down) MSL_SHUFW(simd_broadcast)
                                            MSL_SHUFW(quad_shuffle) MSL_SHUFW(quad_shuffle_xor)
                                                MSL_SHUFW(quad_broadcast) MSL_SHUFW(quad_shuffle_up)
                                                    MSL_SHUFW(quad_shuffle_down)
                                                        MSL_RV(simd_broadcast_first, int f = __builtin_ctz(mask);
                                                               MSL_EACH L(i).out = L(f).in;) template <class T>
                                                        MSL_INLINE T simd_broadcast_first(T x) {
  return simd_broadcast_first_i(x, 0);
}
// reductions: butterfly order over the active lanes
template <class T> struct op_sum {
  static T f(T a, T b) { return T(a + b); }
};
template <class T> struct op_mul {
  static T f(T a, T b) { return T(a * b); }
};
template <class T> struct op_min {
  static T f(T a, T b) { return min(a, b); }
};
template <class T> struct op_max {
  static T f(T a, T b) { return max(a, b); }
};
template <class T> struct op_and {
  static T f(T a, T b) {
    if constexpr (is_integral_v<T>) return T(a & b);
    else if constexpr (is_vec_<T>::value) return T(a & b);
    else __builtin_trap();
  }
};
template <class T> struct op_or {
  static T f(T a, T b) {
    if constexpr (is_integral_v<T>) return T(a | b);
    else if constexpr (is_vec_<T>::value) return T(a | b);
    else __builtin_trap();
  }
};
template <class T> struct op_xor {
  static T f(T a, T b) {
    if constexpr (is_integral_v<T>) return T(a ^ b);
    else if constexpr (is_vec_<T>::value) return T(a ^ b);
    else __builtin_trap();
  }
};
#define MSL_RED(name, OP, W) \
  MSL_RV( \
      name, T v[32]; unsigned ok = mask; MSL_EACH v[i] = L(i).in; for (int k = W / 2; k; k /= 2) { \
        unsigned nok = 0; \
        for (int b = 0; b < 32; b += 2 * k) \
          for (int j = 0; j < k; j++) { \
            int p = b + j, q = p + k; \
            bool a = ok >> p & 1, c = ok >> q & 1; \
            if (a && c) v[p] = OP<T>::f(v[p], v[q]); \
            else if (c) v[p] = v[q]; \
            if (a || c) nok |= 1u << p; \
          } \
        ok = nok; \
      } MSL_EACH L(i) \
                                                                      .out = v[i & ~(W - 1)];) \
  template <class T> \
  MSL_INLINE T name(T x) { \
    return name##_i(x, 0); \
  }
MSL_RED(simd_sum, op_sum, 32)
MSL_RED(simd_product, op_mul, 32) MSL_RED(simd_min, op_min, 32) MSL_RED(simd_max, op_max, 32)
    MSL_RED(simd_and, op_and, 32) MSL_RED(simd_or, op_or, 32) MSL_RED(simd_xor, op_xor, 32) MSL_RED(quad_sum, op_sum, 4)
        MSL_RED(quad_product, op_mul, 4) MSL_RED(quad_min, op_min, 4) MSL_RED(quad_max, op_max, 4)
            MSL_RED(quad_and, op_and, 4) MSL_RED(quad_or, op_or, 4) MSL_RV(
                simd_prefix_inclusive_sum, T s{}; bool h = false; MSL_EACH {
                  s = h ? T(s + L(i).in) : L(i).in;
                  h = true;
                  L(i).out = s;
                }) template <class T>
            MSL_INLINE T simd_prefix_inclusive_sum(T x) {
  return simd_prefix_inclusive_sum_i(x, 0);
}
MSL_RV(
    simd_prefix_exclusive_sum, T s = T(0); MSL_EACH {
      T t = L(i).in;
      L(i).out = s;
      s = T(s + t);
    })
template <class T>
MSL_INLINE T simd_prefix_exclusive_sum(T x) {
  return simd_prefix_exclusive_sum_i(x, 0);
}
MSL_RV(
    simd_prefix_inclusive_product, T s{}; bool h = false; MSL_EACH {
      s = h ? T(s * L(i).in) : L(i).in;
      h = true;
      L(i).out = s;
    })
template <class T>
MSL_INLINE T simd_prefix_inclusive_product(T x) {
  return simd_prefix_inclusive_product_i(x, 0);
}
MSL_RV(
    simd_prefix_exclusive_product, T s = T(1); MSL_EACH {
      T t = L(i).in;
      L(i).out = s;
      s = T(s * t);
    })
template <class T>
MSL_INLINE T simd_prefix_exclusive_product(T x) {
  return simd_prefix_exclusive_product_i(x, 0);
}
MSL_RV(
    simd_fill_up, MSL_EACH {
      int k = L(i).arg & 255;
      int s = (int)i - k;
      L(i).out = s < 0 ? L(i).in : L(s).in;
    })
template <class T> MSL_INLINE T simd_shuffle_and_fill_up(T x, T fill, ushort k) {
  T r = simd_shuffle_up(x, k);
  T g = simd_shuffle_rotate_up(fill, k);
  return (msl_lane() < k) ? g : r;
}
template <class T> MSL_INLINE T simd_shuffle_and_fill_down(T x, T fill, ushort k) {
  T r = simd_shuffle_down(x, k);
  T g = simd_shuffle_rotate_down(fill, k);
  return (msl_lane() + k > 31) ? g : r;
}
template <class T> MSL_INLINE T simd_shuffle_and_fill_up(T x, T fill, ushort k, ushort) {
  return simd_shuffle_and_fill_up(x, fill, k);
}
template <class T> MSL_INLINE T simd_shuffle_and_fill_down(T x, T fill, ushort k, ushort) {
  return simd_shuffle_and_fill_down(x, fill, k);
}
MSL_RV(simd_vote_bits, ulong b = 0; MSL_EACH if (L(i).in) b |= 1ul << i; MSL_EACH L(i).out = (T)b;)
struct simd_vote {
  typedef ulong vote_t;
  vote_t v;
  constexpr explicit simd_vote(vote_t x = 0) : v(x) {}
  constexpr explicit operator vote_t() const { return v; }
  constexpr bool all() const { return (uint)v == ~0u; }
  constexpr bool any() const { return v != 0; }
};
MSL_INLINE simd_vote simd_ballot(bool b) { return simd_vote(simd_vote_bits_i<ulong>(b, 0)); }
MSL_INLINE simd_vote simd_active_threads_mask() { return simd_vote(simd_vote_bits_i<ulong>(1, 0)); }
MSL_RV(simd_all, bool r = true; MSL_EACH r = r && L(i).in; MSL_EACH L(i).out = r;) MSL_INLINE bool simd_all(bool b) {
  return simd_all_i<bool>(b, 0);
}
MSL_RV(simd_any, bool r = false; MSL_EACH r = r || L(i).in; MSL_EACH L(i).out = r;) MSL_INLINE bool simd_any(bool b) {
  return simd_any_i<bool>(b, 0);
}
MSL_RV(simd_is_first, int f = __builtin_ctz(mask); MSL_EACH L(i).out = (int)i == f;) MSL_INLINE bool simd_is_first() {
  return simd_is_first_i<bool>(true, 0);
}
MSL_INLINE bool quad_all(bool b) { return quad_and((int)b) != 0; }
MSL_INLINE bool quad_any(bool b) { return quad_or((int)b) != 0; }
} // namespace metal
