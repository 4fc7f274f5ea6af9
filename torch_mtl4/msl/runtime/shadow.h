// Decides what an address is: private stack (not watched), threadgroup arena, bound buffer, or something else.
#pragma once
#include "cost.h"
#include "state.h"

namespace msl {
Buffer *search_buffer(Worker *w, uintptr_t address, size_t n);
void check_threadgroup(Worker *w, size_t offset, size_t n, int access, uintptr_t pc);
void check_device(Worker *w, Buffer *b, size_t offset, size_t n, int access, uintptr_t pc);
void check_elsewhere(Worker *w, uintptr_t address, size_t n, int access, uintptr_t pc);

inline bool contains(const Buffer *b, uintptr_t address, size_t n) {
  return address >= b->base && address + n <= b->base + b->length;
}
// The bound buffer that holds all of an access, or null.
inline Buffer *find_buffer(Worker *w, uintptr_t address, size_t n) {
  Buffer *b = w->last_buffer;
  return b && contains(b, address, n) ? b : search_buffer(w, address, n);
}

inline void check(Worker *w, uintptr_t address, size_t n, int access, uintptr_t pc) {
  size_t offset = address - (uintptr_t)w->arena;
  if (offset < ARENA_BYTES) check_threadgroup(w, offset, n, access, pc);
  else if (Buffer *b = find_buffer(w, address, n)) check_device(w, b, address - b->base, n, access, pc);
  else check_elsewhere(w, address, n, access, pc);
}

// An access of the kernel, not of the runtime that works for it.
inline bool is_watched(const Worker *w, uintptr_t address) {
  return w && !w->unchecked && w->current && address - w->current->stack_low >= STACK_BYTES;
}
inline void watch(Worker *w, uintptr_t address, size_t n, int access, uintptr_t pc) {
  if (!is_watched(w, address)) return;
  if (w->cost) count_access(w, address, n, access);
  if (w->cells) check(w, address, n, access, pc);
}
} // namespace msl
