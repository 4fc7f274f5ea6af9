// What the Python side calls: one dispatch at a time, over as many workers as there are cores.
#include "state.h"
#include <algorithm>
#include <mutex>
#include <thread>
#include <time.h>

namespace msl {
namespace {
std::mutex one_dispatch;
std::vector<Worker *> pool; // stacks and arenas are kept from dispatch to dispatch

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
} // namespace
} // namespace msl

using namespace msl;

extern "C" {
struct MslBinding { // mirrored in native.py
  int index;
  void *buffer;
  uint64_t offset;
  const MslTensorBinding *tensor;
};

struct MslDispatch { // mirrored in native.py
  MslEntry entry;
  const MslLibrary *library;
  unsigned groups[3], threadgroup[3], threads[3];
  int exact, bindings;
  const MslBinding *binding;
  const uint64_t *threadgroup_bytes;
};

// Returns the findings, which the caller reads and frees.
Reports *msl_dispatch(const MslDispatch *d, const Options *options, Stats *out) {
  std::lock_guard<std::mutex> lock(one_dispatch);
  Job job{};
  job.reports = new Reports;
  job.entry = d->entry;
  job.options = *options;
  job.exact = d->exact;
  job.total = 1;
  for (int i = 0; i < 3; i++) {
    job.groups[i] = d->groups[i];
    job.nominal[i] = d->threadgroup[i];
    job.threads[i] = d->threads[i];
    job.total *= d->groups[i];
  }
  job.image_low = (uintptr_t)d->library->image_begin;
  job.image_high = (uintptr_t)d->library->image_end;
  std::copy_n(d->threadgroup_bytes, MSL_THREADGROUP_BUFFERS, job.threadgroup_bytes);

  std::fill_n(job.bindings.buffer, MSL_BUFFERS, (void *)zero_buffer()->base);
  for (int i = 0; i < d->bindings; i++) {
    const MslBinding &b = d->binding[i];
    Buffer *buffer = (Buffer *)b.buffer;
    job.bindings.buffer[b.index] = (char *)buffer->base + b.offset;
    job.bindings.tensor[b.index] = b.tensor;
    if (std::find(job.buffers.begin(), job.buffers.end(), buffer) != job.buffers.end()) continue;
    job.buffers.push_back(buffer);
    prepare_buffer(buffer, options->checked);
  }
  job.buffers.push_back(zero_buffer());

  size_t workers = options->workers ? options->workers : options->checked ? 1 : std::thread::hardware_concurrency();
  workers = std::max<size_t>(1, std::min<uint64_t>(workers, job.total));
  while (pool.size() < workers) pool.push_back(new_worker());

  catch_faults();
  double begin = now();
  if (workers == 1) run_worker(pool[0], &job, 0);
  else {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < workers; i++) threads.emplace_back(run_worker, pool[i], &job, (int)i);
    for (auto &t : threads) t.join();
  }
  *out = {};
  out->seconds = now() - begin;
  release_faults();
  for (size_t i = 0; i < workers; i++) {
    const Stats &s = pool[i]->stats;
    out->cpu_seconds += s.cpu_seconds;
    out->switches += s.switches;
    out->simd_operations += s.simd_operations;
    out->barriers += s.barriers;
    out->threadgroup_bytes = std::max(out->threadgroup_bytes, s.threadgroup_bytes);
    out->aborted |= s.aborted;
  }
  out->workers = workers;
  return job.reports;
}
}
