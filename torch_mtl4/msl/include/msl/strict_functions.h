// Functions without memory, for the strict pass: math, simdgroup and quadgroup operations, barriers.
#pragma once
namespace metal {
#define MSL_UNARY(n) template <class T> T n(T);
#define MSL_BINARY(n) \
  template <class T> T n(T, T); \
  template <class T, int N> vec<T, N> n(vec<T, N>, T);
#define MSL_MATH \
  MSL_UNARY(exp) \
  MSL_UNARY(exp2) \
  MSL_UNARY(exp10) \
  MSL_UNARY(log) \
  MSL_UNARY(log2) \
  MSL_UNARY(log10) \
  MSL_UNARY(sqrt) \
  MSL_UNARY(rsqrt) \
  MSL_UNARY(sin) \
  MSL_UNARY(cos) \
  MSL_UNARY(tan) \
  MSL_UNARY(asin) \
  MSL_UNARY(acos) \
  MSL_UNARY(atan) \
  MSL_UNARY(sinh) \
  MSL_UNARY(cosh) \
  MSL_UNARY(tanh) \
  MSL_UNARY(fabs) \
  MSL_UNARY(abs) \
  MSL_UNARY(floor) \
  MSL_UNARY(ceil) \
  MSL_UNARY(round) \
  MSL_UNARY(rint) \
  MSL_UNARY(trunc) \
  MSL_UNARY(fract) \
  MSL_UNARY(sign) \
  MSL_UNARY(saturate) \
  MSL_BINARY(min) \
  MSL_BINARY(max) \
  MSL_BINARY(pow) \
  MSL_BINARY(powr) \
  MSL_BINARY(fmin) \
  MSL_BINARY(fmax) \
  MSL_BINARY(fmod) \
  MSL_BINARY(atan2) \
  MSL_BINARY(step)
MSL_MATH
namespace fast {
MSL_MATH
}
namespace precise {
MSL_MATH
}
template <class T> T fma(T, T, T);
template <class T> T clamp(T, T, T);
template <class T, int N> vec<T, N> clamp(vec<T, N>, T, T);
template <class T> T mix(T, T, T);
template <class T> T smoothstep(T, T, T);
template <class T> T select(T, T, bool);
template <class T, int N, class B> vec<T, N> select(vec<T, N>, vec<T, N>, B);
template <class T, int N> T dot(vec<T, N>, vec<T, N>);
template <class T, int N> T length(vec<T, N>);
template <class T, int N> vec<T, N> normalize(vec<T, N>);
template <class T> bool isnan(T);
template <class T> bool isinf(T);
template <class T> bool isfinite(T);
MSL_UNARY(popcount)
MSL_UNARY(clz)
MSL_UNARY(ctz)
MSL_UNARY(reverse_bits)
MSL_BINARY(mulhi)
MSL_BINARY(rotate)

enum class mem_flags : unsigned { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

#define MSL_SHUFFLE(n) template <class T> T n(T, ushort);
#define MSL_FILL(n) template <class T> T n(T, T, ushort, ushort = 32);
#define MSL_LANES(prefix, vote) \
  struct prefix##_vote { \
    using vote_t = vote; \
    explicit prefix##_vote(vote_t = 0); \
    explicit operator vote_t() const; \
    bool all() const; \
    bool any() const; \
  }; \
  MSL_UNARY(prefix##_sum) \
  MSL_UNARY(prefix##_product) \
  MSL_UNARY(prefix##_min) \
  MSL_UNARY(prefix##_max) \
  MSL_UNARY(prefix##_and) \
  MSL_UNARY(prefix##_or) \
  MSL_UNARY(prefix##_xor) \
  MSL_UNARY(prefix##_broadcast_first) \
  MSL_UNARY(prefix##_prefix_inclusive_sum) \
  MSL_UNARY(prefix##_prefix_exclusive_sum) \
  MSL_UNARY(prefix##_prefix_inclusive_product) \
  MSL_UNARY(prefix##_prefix_exclusive_product) \
  MSL_SHUFFLE(prefix##_shuffle) \
  MSL_SHUFFLE(prefix##_shuffle_xor) \
  MSL_SHUFFLE(prefix##_shuffle_up) \
  MSL_SHUFFLE(prefix##_shuffle_down) \
  MSL_SHUFFLE(prefix##_shuffle_rotate_up) \
  MSL_SHUFFLE(prefix##_shuffle_rotate_down) \
  MSL_SHUFFLE(prefix##_broadcast) \
  MSL_FILL(prefix##_shuffle_and_fill_up) \
  MSL_FILL(prefix##_shuffle_and_fill_down) \
  prefix##_vote prefix##_ballot(bool); \
  prefix##_vote prefix##_active_threads_mask(); \
  bool prefix##_all(bool); \
  bool prefix##_any(bool); \
  bool prefix##_is_first(); \
  bool prefix##_is_helper_thread();
MSL_LANES(simd, ulong)
MSL_LANES(quad, ushort)
#undef MSL_UNARY
#undef MSL_BINARY
#undef MSL_MATH
#undef MSL_SHUFFLE
#undef MSL_FILL
#undef MSL_LANES
} // namespace metal
