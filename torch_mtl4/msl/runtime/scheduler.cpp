// One fiber per GPU thread; simdgroup operations and barriers are rendezvous.
#include "context_switch.h"
#include "cost.h"
#include "state.h"

extern "C" __thread MslThread *msl_current __attribute__((tls_model("initial-exec"))) = nullptr;

namespace msl {
thread_local Worker *worker = nullptr;

namespace {
uint64_t random_number(Worker *w) {
  w->random ^= w->random << 13;
  w->random ^= w->random >> 7;
  w->random ^= w->random << 17;
  return w->random;
}

void finish_simd(Worker *w, Simdgroup &g, Fiber *fibers, unsigned mask) {
  Fiber &first = fibers[__builtin_ctz(mask)];
  w->operation_site = first.site;
  if (mask != g.full && first.operation != MSL_OP_ANY)
    report("divergent-simdgroup-op", first.site, 0,
           "%s executed by only part of the simdgroup (active mask %08x of %08x)",
           first.operation == MSL_OP_BARRIER ? "simdgroup_barrier" : "simdgroup-uniform operation", mask, g.full);
  if (first.operation == MSL_OP_BARRIER) {
    if (first.flags & MSL_MEM_THREADGROUP) g.threadgroup_epoch++;
    if (first.flags & MSL_MEM_DEVICE) g.device_epoch++;
    if (w->cost) w->cost->simdgroup_barriers++;
  } else if (first.combine) {
    void *lanes[SIMD_WIDTH];
    for (int i = 0; i < SIMD_WIDTH; i++) lanes[i] = (mask >> i & 1) ? fibers[i].payload : nullptr;
    w->unchecked++;
    first.combine(lanes, mask);
    w->unchecked--;
  }
  for (unsigned m = mask; m; m &= m - 1) fibers[__builtin_ctz(m)].state = FiberState::Running;
  g.runnable |= mask;
  g.waiting &= ~mask;
  g.mixed = false;
  if (w->cost && first.name) count_named(w, Counted::Simdgroup, first.name);
  w->stats.simd_operations++;
}

// Lanes wait at simdgroup operations and none can run: the innermost call goes first, then the earliest site.
void resolve_simd(Worker *w, int s) {
  Simdgroup &g = w->simdgroups[s];
  Fiber *fibers = w->fibers + s * SIMD_WIDTH, *best = nullptr;
  for (unsigned m = g.waiting; m; m &= m - 1) {
    Fiber *x = &fibers[__builtin_ctz(m)];
    if (!best || x->depth > best->depth || (x->depth == best->depth && x->site < best->site)) best = x;
  }
  unsigned mask = 0;
  for (unsigned m = g.waiting; m; m &= m - 1) {
    int i = __builtin_ctz(m);
    if (fibers[i].site == best->site && fibers[i].depth == best->depth) mask |= 1u << i;
  }
  finish_simd(w, g, fibers, mask);
}

void release_all(Worker *w) {
  for (int s = 0; s < w->simdgroup_count; s++) w->simdgroups[s].runnable = w->simdgroups[s].live;
  for (int i = 0; i < w->n; i++)
    if (w->fibers[i].state != FiberState::Done) w->fibers[i].state = FiberState::Running;
  w->at_barrier = w->at_group_operation = 0;
}

// Every live thread waits at a threadgroup barrier or at an operation of the whole threadgroup.
void finish_group(Worker *w) {
  Fiber *first = nullptr, *other = nullptr;
  unsigned flags = ~0u;
  for (int i = 0; i < w->n; i++) {
    Fiber *x = &w->fibers[i];
    if (x->state == FiberState::Done) continue;
    if (!first) first = x;
    else if (x->site != first->site || x->state != first->state) other = x;
    flags &= x->flags;
  }
  if (other)
    report("divergent-barrier", first->site, other->site,
           "threads of one threadgroup wait at different barriers (thread %u and thread %u)", first->thread.index,
           other->thread.index);
  else if (w->live != w->n && w->job->options.exit_barriers)
    report("barrier-after-exit", first->site, 0,
           "threadgroup barrier reached by %d of %d threads, the others have returned", w->live, w->n);
  if (first->state == FiberState::GroupOperation && !other) {
    for (int i = 0; i < w->n; i++)
      w->payloads[i] = w->fibers[i].state == FiberState::GroupOperation ? w->fibers[i].payload : nullptr;
    w->operation_site = first->site;
    w->unchecked++;
    first->combine(w->payloads, w->n);
    w->unchecked--;
  } else {
    if (flags & MSL_MEM_THREADGROUP) {
      w->threadgroup_epoch++;
      for (int s = 0; s < w->simdgroup_count; s++) w->simdgroups[s].threadgroup_epoch++;
    }
    if (flags & MSL_MEM_DEVICE) {
      w->device_epoch++;
      for (int s = 0; s < w->simdgroup_count; s++) w->simdgroups[s].device_epoch++;
    }
    if (w->cost) w->cost->threadgroup_barriers++;
  }
  w->stats.barriers++;
  release_all(w);
}

// The fiber that runs next, or null when the threadgroup is finished.
Fiber *pick(Worker *w) {
  bool shuffle = w->job->options.shuffle;
  int start = w->current ? w->current->thread.simdgroup : 0;
  for (;;) {
    if (shuffle && w->simdgroup_count > 1 && (random_number(w) & 7) == 0) start = random_number(w) % w->simdgroup_count;
    for (int k = 0; k < w->simdgroup_count; k++) {
      int s = start + k;
      if (s >= w->simdgroup_count) s -= w->simdgroup_count;
      Simdgroup &g = w->simdgroups[s];
      if (!g.runnable) {
        if (!g.waiting) continue;
        resolve_simd(w, s);
      }
      int lane = __builtin_ctz(g.runnable);
      if (shuffle) {
        int first = random_number(w) & (SIMD_WIDTH - 1);
        if (unsigned later = g.runnable >> first) lane = first + __builtin_ctz(later);
      }
      return &w->fibers[s * SIMD_WIDTH + lane];
    }
    if (!w->live) return nullptr;
    finish_group(w);
  }
}

void fiber_main();

void take_stack(Worker *w, Fiber *f) {
  f->stack_low = w->free_stacks.pop();
  f->stack_top = stack_top(w, f->stack_low);
  f->sp = fresh_stack(f->stack_top, fiber_main);
}

void switch_to(Worker *w, Fiber *next, void **save) {
  w->current = next;
  w->stats.switches++;
  if (next) {
    msl_current = &next->thread;
    if (!next->sp) take_stack(w, next);
  }
  msl_switch(save, next ? next->sp : w->main_sp);
}

void reschedule(Worker *w) {
  Fiber *me = w->current, *next = pick(w);
  if (next != me) switch_to(w, next, &me->sp);
}

void fiber_main() {
  Worker *w = worker;
  for (;;) {
    Fiber *f = w->current;
    w->job->entry(&w->bindings);
    f->state = FiberState::Done;
    Simdgroup &g = w->simdgroups[f->thread.simdgroup];
    unsigned bit = 1u << f->thread.lane;
    g.live &= ~bit;
    g.runnable &= ~bit;
    w->live--;
    Fiber *next = pick(w);
    if (!next || next->sp) {
      w->free_stacks.push(f->stack_low);
      switch_to(w, next, &f->sp);
      __builtin_unreachable();
    }
    w->current = next; // has not run yet: it takes over this stack, which is warm
    msl_current = &next->thread;
    next->stack_low = f->stack_low;
    next->stack_top = f->stack_top;
    next->sp = f;
  }
}

// Marks the calling fiber as waiting.
Fiber *park(Worker *w, FiberState state, uintptr_t site, void *payload, void (*combine)(void **, unsigned),
            unsigned flags) {
  Fiber *f = w->current;
  f->site = site;
  f->state = state;
  f->payload = payload;
  f->combine = combine;
  f->flags = flags;
  w->simdgroups[f->thread.simdgroup].runnable &= ~(1u << f->thread.lane);
  return f;
}

void simd_rendezvous(int operation, const char *name, uintptr_t site, uintptr_t frame, void *payload,
                     MslLanesFn combine, unsigned flags) {
  Worker *w = worker;
  Fiber *f = park(w, FiberState::SimdOperation, site, payload, combine, flags);
  Simdgroup &g = w->simdgroups[f->thread.simdgroup];
  f->depth = f->stack_top - frame;
  f->operation = operation;
  f->name = name;
  if (!g.waiting) {
    g.site = site;
    g.mixed = false;
  } else if (g.site != site) g.mixed = true;
  g.waiting |= 1u << f->thread.lane;
  if (g.waiting == g.live && !g.mixed) {
    finish_simd(w, g, w->fibers + f->thread.simdgroup * SIMD_WIDTH, g.waiting);
    if (!w->job->options.shuffle) return;
  }
  reschedule(w);
}
} // namespace

void run_fibers(Worker *w) {
  w->current = nullptr;
  switch_to(w, pick(w), &w->main_sp);
  w->current = nullptr;
}

void leave_to_main() {
  Worker *w = worker;
  void *unused;
  w->current = nullptr;
  msl_switch(&unused, w->main_sp);
  __builtin_unreachable();
}

} // namespace msl

using namespace msl;

extern "C" {
unsigned msl_lane(void) { return msl_current->lane; }
unsigned msl_thread_index(void) { return msl_current->index; }
unsigned msl_simdgroup(void) { return msl_current->simdgroup; }
unsigned msl_threads(void) { return msl_current->group->threads; }
int msl_layout(void) { return msl_current->group->layout; }
int msl_zero_cooperative(void) { return msl_current->group->zero_cooperative; }

MSL_CONVERGENT void msl_simd_op(int operation, const char *name, void *payload, MslLanesFn combine) {
  simd_rendezvous(operation, name, MSL_CALLER, (uintptr_t)__builtin_frame_address(0), payload, combine, 0);
}

MSL_CONVERGENT void msl_simdgroup_barrier(unsigned flags) {
  simd_rendezvous(MSL_OP_BARRIER, nullptr, MSL_CALLER, (uintptr_t)__builtin_frame_address(0), nullptr, nullptr, flags);
}

MSL_CONVERGENT void msl_threadgroup_barrier(unsigned flags) {
  Worker *w = worker;
  park(w, FiberState::Barrier, MSL_CALLER, nullptr, nullptr, flags);
  if (++w->at_barrier == w->live) {
    finish_group(w);
    if (!w->job->options.shuffle) return;
  }
  reschedule(w);
}

MSL_CONVERGENT void msl_group_op(void *payload, MslThreadsFn combine) {
  Worker *w = worker;
  park(w, FiberState::GroupOperation, MSL_CALLER, payload, combine, ~0u);
  if (++w->at_group_operation == w->live) {
    finish_group(w);
    if (!w->job->options.shuffle) return;
  }
  reschedule(w);
}

// An operation of one thread alone: no rendezvous, but its accesses belong to the line that called it.
__attribute__((noinline)) void msl_thread_op(void *payload, MslThreadsFn combine) {
  Worker *w = worker;
  w->operation_site = MSL_CALLER;
  w->unchecked++;
  combine(&payload, 1);
  w->unchecked--;
}

// Called by atomic operations, so that a loop that waits for another thread lets it run.
void msl_yield(void) {
  Worker *w = worker;
  if (!w || !w->current || ++w->atomics % 256) return;
  Fiber *f = w->current;
  for (int k = 1; k < w->n; k++) {
    Fiber *x = &w->fibers[(f->thread.index + k) % w->n];
    if (x->state != FiberState::Running || x == f) continue;
    switch_to(w, x, &f->sp);
    return;
  }
}
}
