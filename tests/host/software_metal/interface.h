// What the parts of the software Metal device say to each other: Objective-C objects (metal.mm), torch's stream
// (stream.mm), torch's tensors (tensors.cpp), and the runner of kernels, which is Python.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

enum SoftwareSlotKind : int32_t { kUnbound, kNil, kBuffer, kBytes };

// What is bound at an index: `length` bytes at `memory`, from `offset` on.
struct SoftwareSlot {
  SoftwareSlotKind kind;
  void* memory;
  uint64_t length, offset;
};

struct SoftwareDispatch {
  uint64_t pipeline;
  uint64_t groups[3], threads[3];
  uint64_t grid[3];  // threads, in place of groups; zeros: groups say
  SoftwareSlot slots[31];
};

// Every function returns whether it went well, or writes why not into `error`.
struct SoftwareRunner {
  bool (*compile)(uint64_t device, uint64_t library, const char* source, uint64_t language, bool safe_math, char* error,
                  size_t error_size);
  // `constants` reads "<index> <type of Metal> <value>", one a line.
  bool (*specialize)(uint64_t library, uint64_t function, const char* kernel, const char* constants, char* error,
                     size_t error_size);
  bool (*pipeline)(uint64_t function, uint64_t pipeline, uint64_t* max_threads, char* error, size_t error_size);
  bool (*dispatch)(const SoftwareDispatch* dispatch, char* error, size_t error_size);
};

void software_metal_set_runner(const SoftwareRunner* runner);
// Every device from now on is this one. Names as Metal's: "applegpu_g17s".
void software_metal_set_device(uint64_t id, const char* architecture, int macos_major, int macos_minor);
// Objects that are alive, by class: "SoftwareBuffer".
int64_t software_metal_alive(const char* class_name);

void* software_metal_new_buffer(size_t bytes);
void software_metal_release(void* object);
char* software_metal_contents(void* buffer);
void* software_metal_torch_encoder();
// Is this thread inside a command block of torch's stream?
bool software_metal_on_queue();
}
