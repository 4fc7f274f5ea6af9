// metal_atomic: every operation is one step of the host's atomics, reported to the checks as atomic.
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
template <class T> requires(sizeof(T) == 1) struct bits_of_<T> {
  using type = uchar;
};
template <class T> requires(sizeof(T) == 2) struct bits_of_<T> {
  using type = ushort;
};
template <class T> requires(sizeof(T) == 4) struct bits_of_<T> {
  using type = uint;
};
template <class T> requires(sizeof(T) == 8) struct bits_of_<T> {
  using type = ulong;
};

#define MSL_ATOMIC_FUNCTION MSL_UNCHECKED __attribute__((noinline))

template <class T> MSL_ATOMIC_FUNCTION T atomic_load_explicit(const volatile _atomic<T> *p, memory_order) {
  msl_atomic((const void *)p, sizeof(T), MSL_ATOMIC_LOAD, "atomic_load");
  msl_yield();
  T value;
  __atomic_load((T *)&p->v_, &value, __ATOMIC_SEQ_CST);
  return value;
}

template <class T>
MSL_ATOMIC_FUNCTION void atomic_store_explicit(volatile _atomic<T> *p, type_identity_t<T> value, memory_order) {
  msl_atomic((const void *)p, sizeof(T), MSL_ATOMIC_STORE, "atomic_store");
  __atomic_store((T *)&p->v_, &value, __ATOMIC_SEQ_CST);
}

template <class T>
MSL_ATOMIC_FUNCTION T atomic_exchange_explicit(volatile _atomic<T> *p, type_identity_t<T> value, memory_order) {
  msl_atomic((const void *)p, sizeof(T), MSL_ATOMIC_UPDATE, "atomic_exchange");
  msl_yield();
  T before;
  __atomic_exchange((T *)&p->v_, &value, &before, __ATOMIC_SEQ_CST);
  return before;
}

template <class T, class E>
MSL_ATOMIC_FUNCTION bool atomic_compare_exchange_weak_explicit(volatile _atomic<T> *p, E *expected,
                                                               type_identity_t<T> desired, memory_order, memory_order) {
  msl_atomic((const void *)p, sizeof(T), MSL_ATOMIC_UPDATE, "atomic_compare_exchange_weak");
  msl_yield();
  using Bits = typename bits_of_<T>::type;
  Bits found = __builtin_bit_cast(Bits, *expected), wanted = __builtin_bit_cast(Bits, desired);
  bool same = __atomic_compare_exchange_n((Bits *)&p->v_, &found, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  if (!same) *expected = __builtin_bit_cast(T, found);
  return same;
}

// Replaces the value by change(value, operand), and returns what it was.
template <class T, class F> MSL_UNCHECKED inline T atomic_change_(volatile _atomic<T> *p, T operand, F change) {
  using Bits = typename bits_of_<T>::type;
  Bits *bits = (Bits *)&p->v_;
  Bits before = __atomic_load_n(bits, __ATOMIC_SEQ_CST);
  for (;;) {
    T value = __builtin_bit_cast(T, before);
    Bits after = __builtin_bit_cast(Bits, (T)change(value, operand));
    if (__atomic_compare_exchange_n(bits, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return value;
  }
}

#define MSL_ATOMIC_CHANGE(name, expression) \
  template <class T> MSL_ATOMIC_FUNCTION T atomic_fetch_##name##_explicit(volatile _atomic<T> *p, \
                                                                          type_identity_t<T> operand, memory_order) { \
    msl_atomic((const void *)p, sizeof(T), MSL_ATOMIC_UPDATE, "atomic_fetch_" #name); \
    return atomic_change_<T>(p, operand, [](T x, T y) MSL_UNCHECKED { return expression; }); \
  }
MSL_ATOMIC_CHANGE(add, x + y)
MSL_ATOMIC_CHANGE(sub, x - y)
MSL_ATOMIC_CHANGE(min, y < x ? y : x)
MSL_ATOMIC_CHANGE(max, y > x ? y : x)
MSL_ATOMIC_CHANGE(and, x &y)
MSL_ATOMIC_CHANGE(or, x | y)
MSL_ATOMIC_CHANGE(xor, x ^ y)
#undef MSL_ATOMIC_CHANGE

template <class T>
MSL_ATOMIC_FUNCTION void atomic_max_explicit(volatile _atomic<T> *p, type_identity_t<T> operand, memory_order order) {
  atomic_fetch_max_explicit(p, operand, order);
}
template <class T>
MSL_ATOMIC_FUNCTION void atomic_min_explicit(volatile _atomic<T> *p, type_identity_t<T> operand, memory_order order) {
  atomic_fetch_min_explicit(p, operand, order);
}
#undef MSL_ATOMIC_FUNCTION
} // namespace metal
using metal::_atomic;
using metal::atomic_bool;
using metal::atomic_float;
using metal::atomic_int;
using metal::atomic_uint;
using metal::memory_order_relaxed;
