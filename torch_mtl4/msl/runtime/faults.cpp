// Faults of kernels: a guard page was hit, a stack overflowed, a pointer was wild. The dispatch ends, with a report.
#include "state.h"
#include <signal.h>
#include <ucontext.h>

namespace msl {
namespace {
constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL}, SIGNAL_COUNT = sizeof SIGNALS / sizeof *SIGNALS;
struct sigaction before[SIGNAL_COUNT];

bool explain(Worker *w, uintptr_t address, uintptr_t pc) {
  for (Buffer *b : w->job->buffers)
    if (address >= (uintptr_t)b->map && address < (uintptr_t)b->map + b->map_length) {
      report("out-of-bounds", pc, 0, "access at byte %ld of buffer '%s' (%zu bytes): guard page hit",
             (long)(address - b->base), b->name, b->length);
      return true;
    }
  uintptr_t low = w->current->stack_low;
  if (address >= low - PAGE && address < low) {
    report("stack-overflow", pc, 0, "private memory of the thread exceeds %zu bytes", STACK_BYTES);
    return true;
  }
  return false;
}

void on_fault(int number, siginfo_t *info, void *context_) {
  ucontext_t *context = (ucontext_t *)context_;
  Worker *w = worker;
  if (!w || !w->current) { // not a kernel's: hand it back to whoever was in charge
    release_faults();
    return;
  }
  uintptr_t site = context->uc_mcontext.gregs[REG_RIP] + 1; // the other sites are return addresses: one past
  if (!explain(w, (uintptr_t)info->si_addr, site)) {
    if (number == SIGFPE) report("division", site, 0, "integer division by zero, or of the smallest number by -1");
    else if (number == SIGILL)
      report("unreachable", site, 0, "undefined behaviour: the compiler took this place for unreachable");
    else report("wild-access", site, 0, "signal %d at address %p, outside every buffer", number, info->si_addr);
  }
  w->aborted = true;
  context->uc_mcontext.gregs[REG_RIP] = (greg_t)(void *)leave_to_main;
  context->uc_mcontext.gregs[REG_RSP] = (greg_t)((((uintptr_t)w->fault_stack + 65536 - PAGE) & ~(uintptr_t)15) - 8);
}
} // namespace

void catch_faults() {
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int i = 0; i < SIGNAL_COUNT; i++) sigaction(SIGNALS[i], &action, &before[i]);
}

void release_faults() {
  for (int i = 0; i < SIGNAL_COUNT; i++) sigaction(SIGNALS[i], &before[i], nullptr);
}
} // namespace msl
