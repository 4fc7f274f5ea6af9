// One fiber per GPU thread; simdgroup operations and barriers are rendezvous; threadgroups are spread over OS threads.
#include "context_switch.h"
#include "state.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

extern "C" __thread MslThread *msl_current __attribute__((tls_model("initial-exec"))) = nullptr;

namespace msl {
thread_local Worker *worker = nullptr;

namespace {
constexpr size_t FAULT_STACK_BYTES = 131072;

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

void reschedule(Worker *w) {
  Fiber *me = w->current, *next = pick(w);
  if (next == me) return;
  w->current = next;
  w->stats.switches++;
  if (next) msl_current = &next->thread;
  msl_switch(&me->sp, next ? next->sp : w->main_sp);
}

void fiber_main() {
  Worker *w = worker;
  Fiber *f = w->current;
  w->job->entry(&w->bindings);
  f->state = FiberState::Done;
  Simdgroup &g = w->simdgroups[f->thread.simdgroup];
  unsigned bit = 1u << f->thread.lane;
  g.live &= ~bit;
  g.runnable &= ~bit;
  w->live--;
  reschedule(w);
  __builtin_unreachable();
}

void start_fiber(Worker *w, int i, const unsigned *group, const unsigned *size) {
  const Job *job = w->job;
  Fiber &f = w->fibers[i];
  MslThread &t = f.thread;
  t.tid[0] = i % size[0];
  t.tid[1] = i / size[0] % size[1];
  t.tid[2] = i / (size[0] * size[1]);
  for (int d = 0; d < 3; d++) {
    t.tg[d] = group[d];
    t.size[d] = size[d];
    t.nominal[d] = job->nominal[d];
    t.groups[d] = job->groups[d];
    t.grid[d] = job->exact ? job->threads[d] : job->groups[d] * job->nominal[d];
  }
  t.index = i;
  t.lane = i % SIMD_WIDTH;
  t.simdgroup = i / SIMD_WIDTH;
  t.simdgroups = w->simdgroup_count;
  t.threads = w->n;
  t.layout = job->options.layout;
  t.zero_cooperative = job->options.zero_cooperative;
  f.state = FiberState::Running;
  f.sp = fresh_stack(f.stack_top, fiber_main);
}

const char *threadgroup_buffer_name(int i) {
  static const char *names[] = {"[[threadgroup(0)]]", "[[threadgroup(1)]]", "[[threadgroup(2)]]", "[[threadgroup(3)]]"};
  return i < 4 ? names[i] : "[[threadgroup(4 or more)]]";
}

void run_threadgroup(Worker *w, uint64_t id) {
  Job *job = w->job;
  unsigned group[3] = {(unsigned)(id % job->groups[0]), (unsigned)(id / job->groups[0] % job->groups[1]),
                       (unsigned)(id / ((uint64_t)job->groups[0] * job->groups[1]))};
  unsigned size[3];
  for (int d = 0; d < 3; d++) {
    size[d] = job->nominal[d];
    if (job->exact) size[d] = std::min(size[d], job->threads[d] - group[d] * job->nominal[d]);
  }
  w->n = w->live = size[0] * size[1] * size[2];
  w->simdgroup_count = (w->n + SIMD_WIDTH - 1) / SIMD_WIDTH;
  w->at_barrier = w->at_group_operation = 0;
  w->group = (uint32_t)id + 1;
  w->threadgroup_epoch = w->device_epoch = 1;
  if (w->cells) memset(w->cells, 0, sizeof(ThreadgroupCell) * ((w->arena_high + RED_ZONE) / 2 + 1));
  w->arena_top = w->arena_used = 0;
  w->variables.clear();
  for (int i = 0; i < MSL_THREADGROUP_BUFFERS; i++)
    if (job->threadgroup_bytes[i])
      w->bindings.threadgroup[i] =
          allocate_threadgroup(w, job->threadgroup_bytes[i], 16, nullptr, threadgroup_buffer_name(i));
  for (int s = 0; s < w->simdgroup_count; s++) {
    int lanes = std::min(w->n - s * SIMD_WIDTH, SIMD_WIDTH);
    unsigned mask = lanes == SIMD_WIDTH ? ~0u : (1u << lanes) - 1;
    w->simdgroups[s] = {mask, mask, 0, mask, 0, false, 1, 1};
  }
  for (int i = 0; i < w->n; i++) start_fiber(w, i, group, size);
  w->current = nullptr;
  Fiber *first = pick(w);
  w->current = first;
  msl_current = &first->thread;
  msl_switch(&w->main_sp, first->sp);
  w->current = nullptr;
  w->arena_high = std::max(w->arena_high, w->arena_top);
  w->stats.threadgroup_bytes = std::max<uint64_t>(w->stats.threadgroup_bytes, w->arena_used);
}

double seconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
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

void simd_rendezvous(int operation, uintptr_t site, uintptr_t frame, void *payload, MslLanesFn combine,
                     unsigned flags) {
  Worker *w = worker;
  Fiber *f = park(w, FiberState::SimdOperation, site, payload, combine, flags);
  Simdgroup &g = w->simdgroups[f->thread.simdgroup];
  f->depth = f->stack_top - frame;
  f->operation = operation;
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

void leave_to_main() {
  Worker *w = worker;
  void *unused;
  w->current = nullptr;
  msl_switch(&unused, w->main_sp);
  __builtin_unreachable();
}

Worker *new_worker() {
  Worker *w = new Worker{};
  w->fibers = (Fiber *)calloc(MSL_MAX_THREADS, sizeof(Fiber));
  w->stacks = (char *)mmap(nullptr, STACK_SLOT * MSL_MAX_THREADS, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (int i = 0; i < MSL_MAX_THREADS; i++) {
    char *guard = w->stacks + STACK_SLOT * i;
    mprotect(guard, PAGE, PROT_NONE);
    w->fibers[i].stack_low = (uintptr_t)guard + PAGE;
    // Staggered, so that the hot lines of the stacks do not fall into the same cache sets.
    w->fibers[i].stack_top = ((uintptr_t)guard + STACK_SLOT - 192 * (i & 63) - 64) & ~(uintptr_t)63;
  }
  w->arena = (char *)mmap(nullptr, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  w->fault_stack = malloc(FAULT_STACK_BYTES);
  return w;
}

void run_worker(Worker *w, Job *job, int id) {
  double begin = seconds(CLOCK_THREAD_CPUTIME_ID);
  char *signal_stack = (char *)malloc(FAULT_STACK_BYTES);
  stack_t alternative{}, before{};
  alternative.ss_sp = signal_stack;
  alternative.ss_size = FAULT_STACK_BYTES;
  sigaltstack(&alternative, &before);

  w->job = job;
  w->bindings = job->bindings;
  w->random = 0x9E3779B97F4A7C15ull * (job->options.seed + 1) + id;
  w->aborted = false;
  w->unchecked = 0;
  w->last_buffer = nullptr;
  w->stats = {};
  if (!job->options.checked) {
    free(w->cells);
    w->cells = nullptr;
  } else if (!w->cells) w->cells = (ThreadgroupCell *)calloc(ARENA_BYTES / 2, sizeof(ThreadgroupCell));
  worker = w;
  while (!w->aborted) {
    uint64_t i = job->next.fetch_add(1);
    if (i >= job->total) break;
    run_threadgroup(w, i);
  }
  worker = nullptr;
  sigaltstack(&before, nullptr);
  free(signal_stack);
  w->stats.aborted = w->aborted;
  w->stats.cpu_seconds = seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
}
} // namespace msl

using namespace msl;

extern "C" {
unsigned msl_lane(void) { return msl_current->lane; }
unsigned msl_thread_index(void) { return msl_current->index; }
unsigned msl_simdgroup(void) { return msl_current->simdgroup; }
unsigned msl_threads(void) { return msl_current->threads; }
int msl_layout(void) { return msl_current->layout; }
int msl_zero_cooperative(void) { return msl_current->zero_cooperative; }

MSL_CONVERGENT void msl_simd_op(int operation, void *payload, MslLanesFn combine) {
  simd_rendezvous(operation, MSL_CALLER, (uintptr_t)__builtin_frame_address(0), payload, combine, 0);
}

MSL_CONVERGENT void msl_simdgroup_barrier(unsigned flags) {
  simd_rendezvous(MSL_OP_BARRIER, MSL_CALLER, (uintptr_t)__builtin_frame_address(0), nullptr, nullptr, flags);
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

// Called by atomic operations, so that a loop that waits for another thread lets it run.
void msl_yield(void) {
  Worker *w = worker;
  if (!w || !w->current || ++w->atomics % 256) return;
  Fiber *f = w->current;
  for (int k = 1; k < w->n; k++) {
    Fiber *x = &w->fibers[(f->thread.index + k) % w->n];
    if (x->state != FiberState::Running || x == f) continue;
    w->current = x;
    msl_current = &x->thread;
    w->stats.switches++;
    msl_switch(&f->sp, x->sp);
    return;
  }
}
}
