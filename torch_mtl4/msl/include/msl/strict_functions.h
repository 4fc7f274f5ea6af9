// Functions of threads together, for the strict pass: barriers, simdgroup and quadgroup operations.
#pragma once
#include "strict_math.h"
namespace metal {
#define MSL_UNARY(n) template <class T> T n(T);
enum class mem_flags : unsigned { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
mem_flags operator|(mem_flags, mem_flags);
enum memory_order {
  memory_order_relaxed,
  memory_order_acquire,
  memory_order_release,
  memory_order_acq_rel,
  memory_order_seq_cst
};
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };
void threadgroup_barrier(mem_flags);
void threadgroup_barrier(mem_flags, thread_scope);
void simdgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags, thread_scope);
void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device);

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
#undef MSL_SHUFFLE
#undef MSL_FILL
#undef MSL_LANES
} // namespace metal
