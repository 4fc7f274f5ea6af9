// Atomics and simdgroup matrices, for the strict pass: they work on device and threadgroup memory.
#pragma once
namespace metal {
template <class T> struct _atomic {
  T value;
};
template <class T> using atomic = _atomic<T>;
using atomic_int = _atomic<int>;
using atomic_uint = _atomic<uint>;
using atomic_ulong = _atomic<ulong>;
using atomic_bool = _atomic<bool>;
using atomic_float = _atomic<float>;
#define MSL_ATOMIC(result, n, ...) \
  template <class T> result n(volatile MSL_DEVICE _atomic<T> *__VA_ARGS__); \
  template <class T> result n(volatile MSL_THREADGROUP _atomic<T> *__VA_ARGS__);
#define MSL_FETCH(n) MSL_ATOMIC(T, n, , type_identity_t<T>, memory_order)
MSL_ATOMIC(T, atomic_load_explicit, , memory_order)
MSL_ATOMIC(void, atomic_store_explicit, , type_identity_t<T>, memory_order)
MSL_FETCH(atomic_exchange_explicit)
MSL_FETCH(atomic_fetch_add_explicit)
MSL_FETCH(atomic_fetch_sub_explicit)
MSL_FETCH(atomic_fetch_max_explicit)
MSL_FETCH(atomic_fetch_min_explicit)
MSL_FETCH(atomic_fetch_and_explicit)
MSL_FETCH(atomic_fetch_or_explicit)
MSL_FETCH(atomic_fetch_xor_explicit)
MSL_ATOMIC(bool, atomic_compare_exchange_weak_explicit, , T *, type_identity_t<T>, memory_order, memory_order)
MSL_ATOMIC(void, atomic_max_explicit, , type_identity_t<T>, memory_order)
MSL_ATOMIC(void, atomic_min_explicit, , type_identity_t<T>, memory_order)
#undef MSL_FETCH
#undef MSL_ATOMIC

template <class T, int C = 8, int R = 8> struct simdgroup_matrix {
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T);
  vec<T, 2> &thread_elements();
};
using simdgroup_float8x8 = simdgroup_matrix<float>;
using simdgroup_half8x8 = simdgroup_matrix<half>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat>;
#define MSL_MATRIX_MEMORY(SPACE) \
  template <class T> \
  void simdgroup_load(simdgroup_matrix<T> &, const SPACE T *, ulong = 8, ulong2 = ulong2(0), bool = false); \
  template <class T> void simdgroup_store(simdgroup_matrix<T>, SPACE T *, ulong = 8, ulong2 = ulong2(0), bool = false);
MSL_MATRIX_MEMORY(MSL_DEVICE)
MSL_MATRIX_MEMORY(MSL_THREADGROUP)
#undef MSL_MATRIX_MEMORY
template <class D, class A, class B, class C> void
simdgroup_multiply_accumulate(simdgroup_matrix<D> &, simdgroup_matrix<A>, simdgroup_matrix<B>, simdgroup_matrix<C>);
template <class D, class A, class B>
void simdgroup_multiply(simdgroup_matrix<D> &, simdgroup_matrix<A>, simdgroup_matrix<B>);
template <class T, int C = 8, int R = C> simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
} // namespace metal
using metal::simdgroup_bfloat8x8;
using metal::simdgroup_float8x8;
using metal::simdgroup_half8x8;
