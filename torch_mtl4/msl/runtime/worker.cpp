// One worker per OS thread takes threadgroups off the grid; their threads share its stacks and its arena.
#include "cost.h"
#include "state.h"
#include <cstring>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

namespace msl {
namespace {
constexpr size_t FAULT_STACK_BYTES = 131072;

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

void number_threads(Worker *w, const unsigned *size) {
  unsigned tid[3] = {};
  for (int i = 0; i < w->n; i++) {
    MslThread &t = w->fibers[i].thread;
    memcpy(t.tid, tid, sizeof tid);
    t.index = i;
    t.lane = i % SIMD_WIDTH;
    t.simdgroup = i / SIMD_WIDTH;
    t.group = &w->threadgroup;
    for (int d = 0; d < 3 && ++tid[d] == size[d]; d++) tid[d] = 0;
  }
}

void describe_threadgroup(Worker *w, uint64_t id) {
  const Job *job = w->job;
  MslThreadgroup &g = w->threadgroup;
  unsigned before[3];
  memcpy(before, g.size, sizeof before);
  g.tg[0] = id % job->groups[0];
  g.tg[1] = id / job->groups[0] % job->groups[1];
  g.tg[2] = id / ((uint64_t)job->groups[0] * job->groups[1]);
  for (int d = 0; d < 3; d++) {
    g.nominal[d] = g.size[d] = job->nominal[d];
    if (job->exact) g.size[d] = smaller(g.size[d], job->threads[d] - g.tg[d] * job->nominal[d]);
    g.groups[d] = job->groups[d];
    g.grid[d] = job->exact ? job->threads[d] : job->groups[d] * job->nominal[d];
  }
  w->n = w->live = g.threads = g.size[0] * g.size[1] * g.size[2];
  w->simdgroup_count = g.simdgroups = (w->n + SIMD_WIDTH - 1) / SIMD_WIDTH;
  g.layout = job->options.layout;
  g.zero_cooperative = job->options.zero_cooperative;
  if (memcmp(before, g.size, sizeof before)) number_threads(w, g.size);
}

const char *threadgroup_buffer_name(int i) {
  static const char *names[] = {"[[threadgroup(0)]]", "[[threadgroup(1)]]", "[[threadgroup(2)]]", "[[threadgroup(3)]]"};
  return i < 4 ? names[i] : "[[threadgroup(4 or more)]]";
}

void clear_arena(Worker *w) {
  if (w->cells) memset(w->cells, 0, sizeof(ThreadgroupCell) * ((w->arena_high + RED_ZONE) / 2 + 1));
  w->arena_top = w->arena_used = 0;
  w->variables.clear();
  for (int i = 0; i < MSL_THREADGROUP_BUFFERS; i++)
    if (size_t bytes = w->job->threadgroup_bytes[i])
      w->bindings.threadgroup[i] = allocate_threadgroup(w, bytes, 16, nullptr, threadgroup_buffer_name(i));
}

void run_threadgroup(Worker *w, uint64_t id) {
  describe_threadgroup(w, id);
  w->at_barrier = w->at_group_operation = 0;
  w->group = (uint32_t)id + 1;
  w->threadgroup_epoch = w->device_epoch = 1;
  clear_arena(w);
  for (int s = 0; s < w->simdgroup_count; s++) {
    int lanes = smaller(w->n - s * SIMD_WIDTH, SIMD_WIDTH);
    unsigned mask = lanes == SIMD_WIDTH ? ~0u : (1u << lanes) - 1;
    w->simdgroups[s] = {mask, mask, 0, mask, 0, false, 1, 1};
  }
  for (int i = 0; i < w->n; i++) {
    w->fibers[i].sp = nullptr;
    w->fibers[i].state = FiberState::Running;
  }
  run_fibers(w);
  w->arena_high = larger(w->arena_high, w->arena_top);
  w->stats.threadgroup_bytes = larger<uint64_t>(w->stats.threadgroup_bytes, w->arena_used);
}

char *stack_slot(const Worker *w, int i) { return w->stacks + STACK_SLOT * i; }

void collect_stacks(Worker *w) {
  w->free_stacks.clear();
  for (int i = MSL_MAX_THREADS; i-- > 0;) w->free_stacks.push((uintptr_t)stack_slot(w, i) + PAGE);
}
} // namespace

// Staggered, so that the hot lines of the stacks do not fall into the same cache sets.
uintptr_t stack_top(const Worker *w, uintptr_t stack_low) {
  size_t slot = (stack_low - (uintptr_t)w->stacks) / STACK_SLOT;
  return (stack_low + STACK_BYTES - 192 * (slot & 63) - 64) & ~(uintptr_t)63;
}

Worker *new_worker() {
  Worker *w = make_zeroed<Worker>();
  w->fibers = make_zeroed<Fiber>(MSL_MAX_THREADS);
  w->stacks = (char *)mmap(nullptr, STACK_SLOT * MSL_MAX_THREADS, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (int i = 0; i < MSL_MAX_THREADS; i++) mprotect(stack_slot(w, i), PAGE, PROT_NONE);
  w->arena = (char *)mmap(nullptr, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  w->fault_stack = malloc(FAULT_STACK_BYTES);
  return w;
}

void run_worker(Worker *w) {
  Job *job = w->job;
  double begin = cpu_seconds();
  char *signal_stack = (char *)malloc(FAULT_STACK_BYTES);
  stack_t alternative{}, before{};
  alternative.ss_sp = signal_stack;
  alternative.ss_size = FAULT_STACK_BYTES;
  sigaltstack(&alternative, &before);

  w->bindings = job->bindings;
  w->random = 0x9E3779B97F4A7C15ull * (job->options.seed + 1) + w->id;
  w->aborted = false;
  w->unchecked = 0;
  w->last_buffer = nullptr;
  w->stats = {};
  if (w->free_stacks.count != MSL_MAX_THREADS) collect_stacks(w); // new, or the last dispatch was aborted
  if (!job->options.checked) {
    free(w->cells);
    w->cells = nullptr;
  } else if (!w->cells) w->cells = make_zeroed<ThreadgroupCell>(ARENA_BYTES / 2);
  w->cost = job->cost ? new_cost(*job) : nullptr;
  worker = w;
  while (!w->aborted) {
    uint64_t i = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
    if (i >= job->total) break;
    run_threadgroup(w, i);
  }
  worker = nullptr;
  sigaltstack(&before, nullptr);
  free(signal_stack);
  w->stats.aborted = w->aborted;
  w->stats.cpu_seconds = cpu_seconds() - begin;
}
} // namespace msl
