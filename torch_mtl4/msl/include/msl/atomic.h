// metal_atomic.
#pragma once
#include "barriers.h"
#include "traits.h"
namespace metal {
template <class T> struct _atomic {
  T v_;
};
template <class T> using atomic = _atomic<T>;
using atomic_int = _atomic<int>;
using atomic_uint = _atomic<uint>;
using atomic_bool = _atomic<bool>;
using atomic_ulong = _atomic<ulong>;
using atomic_float = _atomic<float>;
template <class T> struct bits_of_;
template <class T> requires(sizeof(T) == 4) struct bits_of_<T> {
  using type = uint;
};
template <class T> requires(sizeof(T) == 8) struct bits_of_<T> {
  using type = ulong;
};
template <class T> requires(sizeof(T) == 1) struct bits_of_<T> {
  using type = uchar;
};
template <class T> requires(sizeof(T) == 2) struct bits_of_<T> {
  using type = ushort;
};
#define MSL_AT MSL_UNCHECKED __attribute__((noinline))
template <class T> MSL_AT T atomic_load_explicit(const volatile _atomic<T> *p, memory_order) {
  msl_check((const void *)p, sizeof(T), MSL_ATOMIC);
  msl_yield();
  T r;
  __atomic_load((T *)&p->v_, &r, 5);
  return r;
}
template <class T> MSL_AT void atomic_store_explicit(volatile _atomic<T> *p, type_identity_t<T> x, memory_order) {
  msl_check((const void *)p, sizeof(T), MSL_ATOMIC);
  __atomic_store((T *)&p->v_, &x, 5);
}
template <class T> MSL_AT T atomic_exchange_explicit(volatile _atomic<T> *p, type_identity_t<T> x, memory_order) {
  msl_check((const void *)p, sizeof(T), MSL_ATOMIC);
  msl_yield();
  T r;
  __atomic_exchange((T *)&p->v_, &x, &r, 5);
  return r;
}
template <class T, class E> MSL_AT bool
atomic_compare_exchange_weak_explicit(volatile _atomic<T> *p, E *e, type_identity_t<T> x, memory_order, memory_order) {
  msl_check((const void *)p, sizeof(T), MSL_ATOMIC);
  msl_yield();
  using B = typename bits_of_<T>::type;
  B eb = __builtin_bit_cast(B, *e), xb = __builtin_bit_cast(B, x);
  bool r = __atomic_compare_exchange_n((B *)&p->v_, &eb, xb, false, 5, 5);
  if (!r) *e = __builtin_bit_cast(T, eb);
  return r;
}
#define MSL_RMW(n, e) \
  template <class T> MSL_AT T n(volatile _atomic<T> *p, type_identity_t<T> y, memory_order) { \
    msl_check((const void *)p, sizeof(T), MSL_ATOMIC); \
    using B = typename bits_of_<T>::type; \
    B *q = (B *)&p->v_; \
    B o = __atomic_load_n(q, 5); \
    for (;;) { \
      T x = __builtin_bit_cast(T, o); \
      T z = (T)(e); \
      B nb = __builtin_bit_cast(B, z); \
      if (__atomic_compare_exchange_n(q, &o, nb, false, 5, 5)) return x; \
    } \
  }
MSL_RMW(atomic_fetch_add_explicit, x + y)
MSL_RMW(atomic_fetch_sub_explicit, x - y) MSL_RMW(atomic_fetch_min_explicit, y < x ? y : x)
    MSL_RMW(atomic_fetch_max_explicit, y > x ? y : x) MSL_RMW(atomic_fetch_and_explicit, x &y)
        MSL_RMW(atomic_fetch_or_explicit, x | y) MSL_RMW(atomic_fetch_xor_explicit, x ^ y) template <class T>
        MSL_AT void atomic_max_explicit(volatile _atomic<T> *p, type_identity_t<T> y, memory_order o) {
  atomic_fetch_max_explicit(p, y, o);
}
template <class T> MSL_AT void atomic_min_explicit(volatile _atomic<T> *p, type_identity_t<T> y, memory_order o) {
  atomic_fetch_min_explicit(p, y, o);
}
} // namespace metal
using metal::_atomic;
using metal::atomic_bool;
using metal::atomic_float;
using metal::atomic_int;
using metal::atomic_uint;
using metal::memory_order_relaxed;
