// Device buffers between guard pages, and the arena of threadgroup memory.
#include "state.h"
#include <cstring>
#include <sys/mman.h>

namespace msl {
namespace {
constexpr size_t ALIGN = 64; // of the largest vector types

void *map_pages(size_t bytes, int protection) {
  void *p = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) abort();
  return p;
}

void make_shadow(Buffer *b) {
  if (b->shadow) return;
  b->shadow = make_zeroed<DeviceCell>(b->length / 4 + 2);
  if (!b->uninitialised)
    for (size_t i = 0; i < b->length / 4 + 2; i++) b->shadow[i].initialised = 0xF;
}
} // namespace

// What an unbound index reads: zeros. A null reference would let the compiler's speculation crash.
Buffer *zero_buffer() {
  static Buffer *zeros = [] {
    Buffer *b = make_zeroed<Buffer>();
    b->length = b->map_length = b->body = 1 << 20;
    b->map = (char *)map_pages(b->length, PROT_READ);
    b->base = (uintptr_t)b->map;
    b->readonly = true;
    b->name = strdup("(unbound)");
    return b;
  }();
  return zeros;
}

// A fast dispatch protects the guard pages; a checked one reports an access there and lets it pass.
void prepare_buffer(Buffer *b, bool checked) {
  if (b->guarded == checked) {
    int protection = checked ? PROT_READ | PROT_WRITE : PROT_NONE;
    mprotect(b->map, b->red, protection);
    mprotect(b->map + b->red + b->body, b->red, protection);
    b->guarded = !checked;
  }
  if (!checked) return;
  make_shadow(b);
  forget_dispatch(b);
}

void *allocate_threadgroup(Worker *w, size_t size, size_t align, const void *key, const char *name) {
  align = larger<size_t>(align, 16);
  size_t offset = (w->arena_top + RED_ZONE + align - 1) / align * align;
  w->arena_used += (size + 15) / 16 * 16;
  if (w->arena_used > w->job->options.threadgroup_limit)
    report("threadgroup-memory", MSL_CALLER, 0, "threadgroup memory of %zu bytes exceeds the limit of %zu",
           w->arena_used, (size_t)w->job->options.threadgroup_limit);
  if (offset + size + RED_ZONE > ARENA_BYTES) {
    w->aborted = true;
    leave_to_main();
  }
  w->arena_top = offset + size;
  w->variables.push({key, (uint32_t)offset, (uint32_t)size, name});
  if (w->cells)
    for (size_t i = offset / 2; i < (offset + size + 1) / 2; i++) w->cells[i].valid = 1;
  memset(w->arena + offset, POISON, size);
  return w->arena + offset;
}
} // namespace msl

using namespace msl;

extern "C" {
void *msl_threadgroup_variable(const void *key, msl_size size, msl_size align, const char *name) {
  for (auto &v : worker->variables)
    if (v.key == key) return worker->arena + v.offset;
  return allocate_threadgroup(worker, size, align, key, name);
}

void *msl_scratch(msl_size size) {
  Worker *w = worker;
  if (w->scratch_size < size) {
    free(w->scratch);
    w->scratch = aligned_alloc(64, (size + 63) & ~(msl_size)63);
    w->scratch_size = size;
  }
  return w->scratch;
}

// From here on, what the host calls. `phase` is the distance of the first byte from the alignment of its allocation.
void *msl_buffer_new(size_t length, size_t phase, int readonly, const char *name) {
  Buffer *b = make_zeroed<Buffer>();
  b->body = larger(PAGE, (length + phase + ALIGN - 1 + PAGE - 1) / PAGE * PAGE);
  b->red = 16 * PAGE;
  b->map_length = b->body + 2 * b->red;
  b->map = (char *)map_pages(b->map_length, PROT_READ | PROT_WRITE);
  b->length = length;
  b->base = (uintptr_t)b->map + b->red + ((b->body - length - phase) & ~(ALIGN - 1)) + phase; // ends near the guard
  b->readonly = readonly;
  b->name = strdup(name);
  memset(b->map, POISON, b->red);
  return b;
}

void *msl_buffer_address(void *buffer) { return (void *)((Buffer *)buffer)->base; }

// The host wrote it: every byte counts as initialised from now on.
void msl_buffer_filled(void *buffer) {
  Buffer *b = (Buffer *)buffer;
  b->uninitialised = false;
}

// Poisons the bytes for which `defined` is 0, or all; a checked dispatch knows them as never written.
void msl_buffer_undefine(void *buffer, const uint8_t *defined) {
  Buffer *b = (Buffer *)buffer;
  b->uninitialised = true;
  if (!defined) {
    memset((void *)b->base, POISON, b->length);
    return;
  }
  make_shadow(b);
  for (size_t i = 0; i < b->length; i++) {
    if (defined[i]) b->shadow[i / 4].initialised |= 1 << i % 4;
    else ((unsigned char *)b->base)[i] = POISON;
  }
}

// Sets each byte of `defined` to whether the byte of the buffer was written, by the host or by a checked dispatch.
void msl_buffer_defined(void *buffer, uint8_t *defined) {
  Buffer *b = (Buffer *)buffer;
  for (size_t i = 0; i < b->length; i++)
    defined[i] = !b->uninitialised || (b->shadow && (b->shadow[i / 4].initialised >> i % 4 & 1));
}

void msl_buffer_free(void *buffer) {
  Buffer *b = (Buffer *)buffer;
  munmap(b->map, b->map_length);
  free(b->shadow);
  free(b->name);
  free(b);
}
}
