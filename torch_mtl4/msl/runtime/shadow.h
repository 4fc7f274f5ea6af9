// Decides what an address is: private stack (not checked), threadgroup arena, bound buffer, or something else.
#pragma once
#include "state.h"

namespace msl {
void check_threadgroup(Worker *w, size_t offset, size_t n, int access, uintptr_t pc);
void check_device(Worker *w, Buffer *b, size_t offset, size_t n, int access, uintptr_t pc);
void check_elsewhere(Worker *w, uintptr_t address, size_t n, int access, uintptr_t pc);

inline void check(Worker *w, uintptr_t address, size_t n, int access, uintptr_t pc) {
  if (!w || w->unchecked || !w->current) return;
  if (address - w->current->stack_low < STACK_BYTES) return;
  size_t offset = address - (uintptr_t)w->arena;
  Buffer *b = w->last_buffer;
  if (offset < ARENA_BYTES) check_threadgroup(w, offset, n, access, pc);
  else if (b && address >= b->base && address + n <= b->base + b->length)
    check_device(w, b, address - b->base, n, access, pc);
  else check_elsewhere(w, address, n, access, pc);
}
} // namespace msl
