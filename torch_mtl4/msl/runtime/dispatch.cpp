// What the Python side calls: one dispatch at a time, over as many workers as there are cores.
#include "cost.h"
#include "state.h"
#include <cstring>
#include <time.h>
#include <unistd.h>

namespace msl {
namespace {
pthread_mutex_t one_dispatch = PTHREAD_MUTEX_INITIALIZER;
List<Worker *> pool; // stacks and arenas are kept from dispatch to dispatch

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

bool contains(const List<Buffer *> &buffers, const Buffer *buffer) {
  for (Buffer *b : buffers)
    if (b == buffer) return true;
  return false;
}

void run_threads(size_t workers) {
  List<pthread_t> threads{};
  for (size_t i = 1; i < workers; i++) {
    pthread_t thread;
    auto body = [](void *w) -> void * {
      run_worker((Worker *)w);
      return nullptr;
    };
    if (!pthread_create(&thread, nullptr, body, pool[i])) threads.push(thread);
  }
  run_worker(pool[0]); // takes the threadgroups of threads that could not be made, too
  for (pthread_t t : threads) pthread_join(t, nullptr);
  threads.release();
}
} // namespace
} // namespace msl

using namespace msl;

extern "C" {
struct MslBinding { // mirrored in native.py
  int index;        // of the buffer argument; -1 is memory that the kernel reaches in another way
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
  const MslTextureBinding *const *textures;
  const MslSampler *const *samplers;
};

// Returns the findings, which the caller reads and frees.
Reports *msl_dispatch(const MslDispatch *d, const Options *options, Stats *out) {
  Lock lock(one_dispatch);
  Job job{};
  job.reports = make_zeroed<Reports>();
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
  for (int i = 0; i < MSL_THREADGROUP_BUFFERS; i++) job.threadgroup_bytes[i] = d->threadgroup_bytes[i];

  for (void *&buffer : job.bindings.buffer) buffer = (void *)zero_buffer()->base;
  for (int i = 0; i < d->bindings; i++) {
    const MslBinding &b = d->binding[i];
    Buffer *buffer = (Buffer *)b.buffer;
    if (b.index >= 0) {
      job.bindings.buffer[b.index] = (char *)buffer->base + b.offset;
      job.bindings.tensor[b.index] = b.tensor;
    }
    if (contains(job.buffers, buffer)) continue;
    job.buffers.push(buffer);
    prepare_buffer(buffer, options->checked);
  }
  job.buffers.push(zero_buffer());
  if (options->counted) begin_cost(job);
  for (int i = 0; i < MSL_TEXTURES; i++) job.bindings.texture[i] = d->textures[i];
  for (int i = 0; i < MSL_SAMPLERS; i++) job.bindings.sampler[i] = d->samplers[i];

  uint64_t workers = options->workers ? options->workers : options->checked ? 1 : sysconf(_SC_NPROCESSORS_ONLN);
  workers = larger<uint64_t>(1, smaller(workers, job.total));
  while (pool.count < workers) pool.push(new_worker());

  catch_faults();
  double begin = now();
  for (size_t i = 0; i < workers; i++) {
    pool[i]->job = &job;
    pool[i]->id = (int)i;
  }
  if (workers == 1) run_worker(pool[0]);
  else run_threads(workers);
  *out = {};
  out->seconds = now() - begin;
  release_faults();
  for (size_t i = 0; i < workers; i++) {
    const Stats &s = pool[i]->stats;
    out->cpu_seconds += s.cpu_seconds;
    out->switches += s.switches;
    out->simd_operations += s.simd_operations;
    out->barriers += s.barriers;
    out->threadgroup_bytes = larger(out->threadgroup_bytes, s.threadgroup_bytes);
    out->aborted |= s.aborted;
    if (pool[i]->cost) add_cost(job, *pool[i]->cost);
    free_cost(pool[i]->cost);
    pool[i]->cost = nullptr;
  }
  if (job.cost) finish_cost(job);
  job.reports->cost = job.cost;
  job.buffers.release();
  out->workers = workers;
  return job.reports;
}
}
