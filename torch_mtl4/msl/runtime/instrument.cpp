// The callbacks that clang emits into checked and counted kernels: -fsanitize=thread for every memory access, and
// -fsanitize=array-bounds,... for undefined behaviour. Only the instrumentation is clang's; these answers are ours.
#include "shadow.h"
#include <cstring>

using namespace msl;

namespace {
// What the runtime does for a kernel counts as the kernel's own: it belongs to the line that called the operation.
struct AsKernel {
  Worker *w;
  int unchecked;
  explicit AsKernel(Worker *w) : w(w), unchecked(w->unchecked) { w->unchecked = 0; }
  ~AsKernel() { w->unchecked = unchecked; }
  AsKernel(const AsKernel &) = delete;
  uintptr_t site(uintptr_t caller) const { return unchecked ? w->operation_site : caller; }
};

void count_atomic(Worker *w, uintptr_t address, size_t n, int kind, const char *name) {
  bool threadgroup = address - (uintptr_t)w->arena < ARENA_BYTES;
  count_named(w, threadgroup ? Counted::ThreadgroupAtomic : Counted::DeviceAtomic, name);
  if (kind != MSL_ATOMIC_STORE) count_access(w, address, n, MSL_READ);
  if (kind != MSL_ATOMIC_LOAD) count_access(w, address, n, MSL_WRITE);
}
} // namespace

extern "C" {
void msl_check(const void *address, msl_size n, int access) {
  Worker *w = worker;
  if (!w || !(w->cells || w->cost)) return;
  AsKernel as(w);
  watch(w, (uintptr_t)address, n, access, as.site(MSL_CALLER));
}

void msl_atomic(const void *address, msl_size n, int kind, const char *name) {
  Worker *w = worker;
  if (!w || !(w->cells || w->cost)) return;
  AsKernel as(w);
  if (!is_watched(w, (uintptr_t)address)) return;
  if (w->cost) count_atomic(w, (uintptr_t)address, n, kind, name);
  if (w->cells) check(w, (uintptr_t)address, n, MSL_ATOMIC, as.site(MSL_CALLER));
}

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void *, void *) {}
void __tsan_vptr_read(void *) {}

#define MSL_READ_CALLBACK(name, n) \
  void name(void *p) { watch(worker, (uintptr_t)p, n, MSL_READ, MSL_CALLER); }
#define MSL_WRITE_CALLBACK(name, n) \
  void name(void *p) { watch(worker, (uintptr_t)p, n, MSL_WRITE, MSL_CALLER); }
#define MSL_READ_WRITE_CALLBACK(name, n) \
  void name(void *p) { \
    watch(worker, (uintptr_t)p, n, MSL_READ, MSL_CALLER); \
    watch(worker, (uintptr_t)p, n, MSL_WRITE, MSL_CALLER); \
  }
#define MSL_CALLBACKS(n) \
  MSL_READ_CALLBACK(__tsan_read##n, n) \
  MSL_READ_CALLBACK(__tsan_unaligned_read##n, n) \
  MSL_WRITE_CALLBACK(__tsan_write##n, n) \
  MSL_WRITE_CALLBACK(__tsan_unaligned_write##n, n) \
  MSL_READ_WRITE_CALLBACK(__tsan_read_write##n, n) \
  MSL_READ_WRITE_CALLBACK(__tsan_unaligned_read_write##n, n)
MSL_CALLBACKS(1)
MSL_CALLBACKS(2)
MSL_CALLBACKS(4)
MSL_CALLBACKS(8)
MSL_CALLBACKS(16)

void __tsan_read_range(void *p, unsigned long n) { watch(worker, (uintptr_t)p, n, MSL_READ, MSL_CALLER); }
void __tsan_write_range(void *p, unsigned long n) { watch(worker, (uintptr_t)p, n, MSL_WRITE, MSL_CALLER); }

void *__tsan_memcpy(void *to, const void *from, unsigned long n) {
  if (n) {
    watch(worker, (uintptr_t)from, n, MSL_READ, MSL_CALLER);
    watch(worker, (uintptr_t)to, n, MSL_WRITE, MSL_CALLER);
  }
  return memcpy(to, from, n);
}
void *__tsan_memmove(void *to, const void *from, unsigned long n) {
  if (n) {
    watch(worker, (uintptr_t)from, n, MSL_READ, MSL_CALLER);
    watch(worker, (uintptr_t)to, n, MSL_WRITE, MSL_CALLER);
  }
  return memmove(to, from, n);
}
void *__tsan_memset(void *to, int value, unsigned long n) {
  if (n) watch(worker, (uintptr_t)to, n, MSL_WRITE, MSL_CALLER);
  return memset(to, value, n);
}

// Undefined behaviour; the structs are those that clang passes.
struct UbLocation {
  const char *file;
  uint32_t line, column;
};
struct UbType {
  uint16_t kind, info;
  char name[1];
};
struct UbMismatch {
  UbLocation location;
  UbType *type;
  uint8_t log_alignment, kind;
};
struct UbTypes {
  UbLocation location;
  UbType *a, *b;
};

#define MSL_IN_KERNEL (worker && worker->current && !worker->unchecked)

void __ubsan_handle_out_of_bounds(UbTypes *d, uintptr_t index) {
  if (MSL_IN_KERNEL) report("array-bounds", MSL_CALLER, 0, "index %ld outside %s", (long)(int)index, d->a->name);
}
void __ubsan_handle_type_mismatch_v1(UbMismatch *d, uintptr_t address) {
  if (MSL_IN_KERNEL)
    report(address ? "misaligned" : "null", MSL_CALLER, 0, "access to %p as %s which needs alignment %d",
           (void *)address, d->type->name, 1 << d->log_alignment);
}
void __ubsan_handle_shift_out_of_bounds(void *, uintptr_t a, uintptr_t b) {
  if (MSL_IN_KERNEL) report("shift", MSL_CALLER, 0, "shift of %ld by %ld", (long)a, (long)b);
}
void __ubsan_handle_divrem_overflow(void *, uintptr_t, uintptr_t b) {
  if (MSL_IN_KERNEL) report("division", MSL_CALLER, 0, "integer division by %ld", (long)b);
}
void __ubsan_handle_float_cast_overflow(UbTypes *d, uintptr_t) {
  if (MSL_IN_KERNEL)
    report("float-cast", MSL_CALLER, 0, "value does not fit when converted from %s to %s", d->a->name, d->b->name);
}
}
