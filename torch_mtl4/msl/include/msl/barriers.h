// metal_compute: barriers and fences.
#pragma once
#include "scalar.h"
namespace metal {
enum class mem_flags : unsigned {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8,
  mem_object_data = 16
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((unsigned)a | (unsigned)b); }
constexpr mem_flags operator&(mem_flags a, mem_flags b) { return (mem_flags)((unsigned)a & (unsigned)b); }
enum memory_order {
  memory_order_relaxed = 0,
  memory_order_acquire = 2,
  memory_order_release = 3,
  memory_order_acq_rel = 4,
  memory_order_seq_cst = 5
};
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };
// The runtime orders device and threadgroup memory; textures lie in device memory.
constexpr unsigned msl_ordered_(mem_flags f) {
  unsigned flags = (unsigned)f & ((unsigned)mem_flags::mem_device | (unsigned)mem_flags::mem_threadgroup);
  return (unsigned)(f & mem_flags::mem_texture) ? flags | (unsigned)mem_flags::mem_device : flags;
}
MSL_INLINE void threadgroup_barrier(mem_flags f) { msl_threadgroup_barrier(msl_ordered_(f)); }
MSL_INLINE void threadgroup_barrier(mem_flags f, thread_scope) { msl_threadgroup_barrier(msl_ordered_(f)); }
MSL_INLINE void simdgroup_barrier(mem_flags f) { msl_simdgroup_barrier(msl_ordered_(f)); }
MSL_INLINE void simdgroup_barrier(mem_flags f, thread_scope) { msl_simdgroup_barrier(msl_ordered_(f)); }
MSL_INLINE void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device) {
  __atomic_thread_fence(5);
}
} // namespace metal
