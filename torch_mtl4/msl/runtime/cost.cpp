#include "cost.h"
#include "shadow.h"
#include <cstring>

namespace msl {
namespace {
constexpr size_t WORD = 64;

size_t words(const Buffer *b) { return b->length / WORD + 1; }

// Most bytes were touched before: those are only looked at, so that workers do not take the line from each other.
void touch(uint64_t *bits, size_t offset, size_t n) {
  for (size_t end = offset + n; offset < end;) {
    size_t first = offset % WORD, count = smaller(WORD - first, end - offset);
    uint64_t mask = (count == WORD ? ~0ull : (1ull << count) - 1) << first, *word = bits + offset / WORD;
    if ((__atomic_load_n(word, __ATOMIC_RELAXED) & mask) != mask) __atomic_fetch_or(word, mask, __ATOMIC_RELAXED);
    offset += count;
  }
}

uint64_t count_bits(const uint64_t *bits, size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; i++) sum += __builtin_popcountll(bits[i]);
  return sum;
}

NamedCount &named(Cost &cost, Counted what, const char *name) {
  for (NamedCount &x : cost.named)
    if (x.what == what && (x.name == name || !strcmp(x.name, name))) return x;
  cost.named.push({what, name, 0, 0});
  return cost.named[cost.named.count - 1];
}
} // namespace

Cost *new_cost(const Job &job) {
  Cost *cost = make_zeroed<Cost>();
  for (size_t i = 0; i < job.buffers.count; i++) cost->buffers.push({});
  return cost;
}

void free_cost(Cost *cost) {
  if (!cost) return;
  cost->buffers.release();
  cost->counted.release();
  cost->named.release();
  free(cost);
}

void begin_cost(Job &job) {
  job.cost = new_cost(job);
  job.touched = make_zeroed<TouchedBytes>(job.buffers.count);
  for (size_t i = 0; i < job.buffers.count; i++) {
    Buffer *b = job.buffers[i];
    b->number = i;
    job.touched[i] = {make_zeroed<uint64_t>(words(b)), make_zeroed<uint64_t>(words(b))};
  }
}

void add_cost(Job &job, const Cost &of_worker) {
  Cost &sum = *job.cost;
  sum.threadgroup.read += of_worker.threadgroup.read;
  sum.threadgroup.written += of_worker.threadgroup.written;
  sum.threadgroup_barriers += of_worker.threadgroup_barriers;
  sum.simdgroup_barriers += of_worker.simdgroup_barriers;
  for (size_t i = 0; i < sum.buffers.count; i++) {
    sum.buffers[i].read += of_worker.buffers[i].read;
    sum.buffers[i].written += of_worker.buffers[i].written;
  }
  for (const NamedCount &x : of_worker.named) {
    NamedCount &to = named(sum, x.what, x.name);
    to.operations += x.operations;
    to.multiply_accumulates += x.multiply_accumulates;
  }
}

void finish_cost(Job &job) {
  for (size_t i = 0; i < job.buffers.count; i++) {
    Traffic &t = job.cost->buffers[i];
    size_t n = words(job.buffers[i]);
    job.cost->counted.push(job.buffers[i]);
    t.unique_read = count_bits(job.touched[i].read, n);
    t.unique_written = count_bits(job.touched[i].written, n);
    free(job.touched[i].read);
    free(job.touched[i].written);
  }
  free(job.touched);
}

void count_access(Worker *w, uintptr_t address, size_t n, int access) {
  Cost &cost = *w->cost;
  Traffic *traffic = &cost.threadgroup;
  if (address - (uintptr_t)w->arena >= ARENA_BYTES) {
    Buffer *b = find_buffer(w, address, n);
    if (!b) return; // constants of the program, or the runtime's own memory
    traffic = &cost.buffers[b->number];
    const TouchedBytes &touched = w->job->touched[b->number];
    touch(access == MSL_READ ? touched.read : touched.written, address - b->base, n);
  }
  (access == MSL_READ ? traffic->read : traffic->written) += n;
}

void count_named(Worker *w, Counted what, const char *name, uint64_t multiply_accumulates) {
  NamedCount &x = named(*w->cost, what, name);
  x.operations++;
  x.multiply_accumulates += multiply_accumulates;
}
} // namespace msl

using namespace msl;

extern "C" {
void msl_count_products(const char *types, msl_size multiply_accumulates) {
  Worker *w = worker;
  if (w && w->cost) count_named(w, Counted::Matrix, types, multiply_accumulates);
}

struct MslCostView { // mirrored in native.py
  Traffic threadgroup;
  uint64_t threadgroup_barriers, simdgroup_barriers, named;
};

void msl_cost(const Reports *reports, MslCostView *out) {
  const Cost &c = *reports->cost;
  *out = {c.threadgroup, c.threadgroup_barriers, c.simdgroup_barriers, c.named.count};
}

// Of a buffer that was bound in the dispatch; null stands for what was not bound.
void msl_cost_buffer(const Reports *reports, const void *buffer, Traffic *out) {
  const Cost &c = *reports->cost;
  *out = {};
  for (size_t i = 0; i < c.counted.count; i++)
    if (c.counted[i] == (buffer ? buffer : zero_buffer())) *out = c.buffers[i];
}

void msl_cost_named(const Reports *reports, int i, NamedCount *out) { *out = reports->cost->named[i]; }
}
