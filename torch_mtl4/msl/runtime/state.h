// State of a dispatch inside the runtime: fibers, simdgroups, workers, buffers, reports.
#pragma once
#include "abi.h"
#include "containers.h"
#include <cstdint>

namespace msl {

constexpr int SIMD_WIDTH = 32, MAX_SIMDGROUPS = MSL_MAX_THREADS / SIMD_WIDTH;
constexpr size_t PAGE = 4096, STACK_BYTES = 128 * 1024, STACK_SLOT = STACK_BYTES + PAGE;
constexpr size_t ARENA_BYTES = 256 * 1024, RED_ZONE = 64;
constexpr unsigned char POISON = 0xFA; // as float a large negative number, as half -32000-odd

struct Options { // mirrored in native.py
  int workers, checked, counted, shuffle, layout, zero_cooperative, device_races, uninitialised, exit_barriers;
  uint64_t seed, threadgroup_limit;
};

struct Stats { // mirrored in native.py
  double seconds, cpu_seconds;
  uint64_t switches, simd_operations, barriers, threadgroup_bytes, workers;
  int aborted;
};

struct ThreadgroupVariable {
  const void *key;
  uint32_t offset, size;
  const char *name;
};

struct ThreadgroupCell { // shadow of 2 bytes of threadgroup memory: last writer, last readers, barrier epochs
  uint16_t writer, write_epoch, write_simd_epoch;
  uint8_t written, initialised;
  uint32_t write_pc;
  uint16_t reader, read_epoch, read_simd_epoch;
  uint8_t read, other_readers;
  uint32_t read_pc;
  uint8_t valid;
};

struct DeviceCell { // shadow of 4 bytes of device memory
  uint32_t write_group;
  uint16_t writer, write_epoch, write_simd_epoch;
  uint8_t written, initialised;
  uint32_t write_pc;
  uint32_t read_group;
  uint16_t reader, read_epoch, read_simd_epoch;
  uint8_t read, other_readers;
  uint32_t read_pc;
};
enum OtherReaders { OTHER_LANE = 1, OTHER_SIMDGROUP = 2, OTHER_GROUP = 4 };

struct Buffer { // device memory between guard pages, with shadow cells once a checked dispatch has used it
  uintptr_t base;
  size_t length;
  char *map;
  size_t map_length, red, body;
  DeviceCell *shadow;
  bool readonly, uninitialised, guarded, bound;
  char *name;
  size_t number; // in the dispatch that counts its cost
};

struct Report { // one finding; equal ones (same kind, same places) are counted
  const char *kind;
  char message[600];
  uintptr_t pc, other_pc;
  uint64_t count;
  bool has_thread;
  MslThread thread;
  unsigned threadgroup[3];
};

struct Cost;         // cost.h
struct TouchedBytes; // cost.h

struct Reports { // of one dispatch; outlives it until the host has read them
  pthread_mutex_t mutex;
  List<Report> list;
  List<Report> log; // messages of os_log: `kind` is the level
  Cost *cost;       // null if it was not counted
};

enum class FiberState { Running, SimdOperation, Barrier, GroupOperation, Done };

struct Fiber { // one GPU thread
  void *sp;    // null until it has run, and so has a stack
  MslThread thread;
  FiberState state;
  int operation;
  const char *name; // of the simdgroup operation, as the cost calls it
  uintptr_t site, depth;
  void *payload;
  void (*combine)(void **, unsigned);
  unsigned flags;
  uintptr_t stack_low, stack_top;
};

struct Simdgroup {
  unsigned live, runnable, waiting, full;
  uintptr_t site;
  bool mixed; // the waiting lanes stand at different sites
  uint16_t threadgroup_epoch, device_epoch;
};

struct Job {
  MslEntry entry;
  MslBindings bindings;
  unsigned groups[3], nominal[3], threads[3];
  bool exact; // threads[] is the grid; else groups[] is
  Options options;
  size_t threadgroup_bytes[MSL_THREADGROUP_BUFFERS];
  List<Buffer *> buffers;
  uintptr_t image_low, image_high;
  uint64_t next; // threadgroup to run, taken atomically
  uint64_t total;
  Reports *reports;
  Cost *cost;            // null if it is not counted
  TouchedBytes *touched; // of each buffer
};

struct Worker { // one OS thread; all threads of a threadgroup stay on it
  int id;
  Fiber *fibers;
  MslThreadgroup threadgroup;
  Simdgroup simdgroups[MAX_SIMDGROUPS];
  int n, simdgroup_count, live, at_barrier, at_group_operation;
  Fiber *current;
  void *main_sp;
  int unchecked; // > 0 while the runtime itself touches memory for a kernel
  uintptr_t operation_site;
  char *stacks, *arena;
  List<uintptr_t> free_stacks; // lowest usable address of each
  size_t arena_top, arena_high, arena_used;
  List<ThreadgroupVariable> variables;
  ThreadgroupCell *cells;
  uint16_t threadgroup_epoch, device_epoch;
  uint32_t group;
  Job *job;
  MslBindings bindings;
  Buffer *last_buffer;
  uint64_t random;
  bool aborted;
  void *payloads[MSL_MAX_THREADS];
  unsigned atomics;
  void *fault_stack, *scratch;
  size_t scratch_size;
  Cost *cost; // null if it is not counted
  Stats stats;
};

extern thread_local Worker *worker;

// report.cpp
void report(const char *kind, uintptr_t pc, uintptr_t other_pc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void report_list(const char *kind, uintptr_t pc, uintptr_t other_pc, const char *format, __builtin_va_list arguments);

// scheduler.cpp
void run_fibers(Worker *w);
[[noreturn]] void leave_to_main();

// worker.cpp
Worker *new_worker();
void run_worker(Worker *w);
uintptr_t stack_top(const Worker *w, uintptr_t stack_low);

// memory.cpp
Buffer *zero_buffer();
void prepare_buffer(Buffer *b, bool checked);
void *allocate_threadgroup(Worker *w, size_t size, size_t align, const void *key, const char *name);

// shadow.cpp
void forget_dispatch(Buffer *b);

// faults.cpp
void catch_faults();
void release_faults();

inline uintptr_t return_address(void *p) { return (uintptr_t)p; }
#define MSL_CALLER msl::return_address(__builtin_return_address(0))

} // namespace msl
