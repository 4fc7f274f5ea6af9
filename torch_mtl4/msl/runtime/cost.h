// Counts what a dispatch does: bytes moved, operations of simdgroups, products of matrices. ../cost.py says what each
// counter means.
#pragma once
#include "state.h"

namespace msl {
enum class Counted { Simdgroup, DeviceAtomic, ThreadgroupAtomic, Matrix }; // mirrored in native.py

struct NamedCount { // names are text of the kernel's library
  Counted what;
  const char *name;
  uint64_t operations, multiply_accumulates;
};

struct Traffic { // mirrored in native.py
  uint64_t read, written, unique_read, unique_written;
};

struct Cost { // of one worker, and the sum of all
  Traffic threadgroup;
  uint64_t threadgroup_barriers, simdgroup_barriers;
  List<Traffic> buffers;  // in the order of Job::buffers
  List<Buffer *> counted; // Job::buffers, for the host
  List<NamedCount> named;
};

// Which bytes of a buffer were touched, one bit each. Workers share it.
struct TouchedBytes {
  uint64_t *read, *written;
};

Cost *new_cost(const Job &job);
void free_cost(Cost *cost);
void begin_cost(Job &job);
void add_cost(Job &job, const Cost &of_worker);
void finish_cost(Job &job);

void count_access(Worker *w, uintptr_t address, size_t n, int access);
void count_named(Worker *w, Counted what, const char *name, uint64_t multiply_accumulates = 0);
} // namespace msl
