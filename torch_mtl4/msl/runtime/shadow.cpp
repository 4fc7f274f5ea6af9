// Shadow memory: who wrote and who read each cell last, in which barrier epoch, and was it ever written.
// A barrier with mem_threadgroup advances the threadgroup epoch, one with mem_device the device epoch; a simdgroup
// barrier advances those of its simdgroup only. Two accesses in one epoch by different threads are concurrent.
#include "shadow.h"
#include <cstring>

namespace msl {
namespace {
constexpr const char *VERB[] = {"read", "write", "atomic access"};

bool same_simdgroup(uint16_t a, uint16_t b) { return (a - 1) / SIMD_WIDTH == (b - 1) / SIMD_WIDTH; }

struct Place { // a byte of threadgroup memory, in the words of the kernel
  const char *name;
  long byte;
};

Place place(Worker *w, size_t offset) {
  const ThreadgroupVariable *best = nullptr;
  for (auto &v : w->variables)
    if (v.offset <= offset && (!best || v.offset > best->offset)) best = &v;
  return best ? Place{best->name, (long)offset - best->offset} : Place{"?", (long)offset};
}

uint32_t relative(Worker *w, uintptr_t pc) { return (uint32_t)(pc - w->job->image_low); }
uintptr_t absolute(Worker *w, uint32_t pc) { return pc ? w->job->image_low + pc : 0; }

struct ThreadgroupCheck {
  Worker *w;
  uintptr_t pc;
  uint16_t me, epoch, simd_epoch;

  bool concurrent(uint16_t thread, uint16_t e, uint16_t s) const {
    return thread && thread != me && e == epoch && (!same_simdgroup(thread, me) || s == simd_epoch);
  }
  void race(const char *what, const char *other, size_t byte, uint16_t thread, uint32_t other_pc) const {
    Place p = place(w, byte);
    report("race", pc, absolute(w, other_pc),
           "%s of threadgroup variable '%s' byte %ld races with the %s by thread %u: no barrier between", what, p.name,
           p.byte, other, thread - 1);
  }
  void read(ThreadgroupCell &x, size_t byte, uint8_t mask) const {
    if (w->job->options.uninitialised && (x.initialised & mask) != mask) {
      Place p = place(w, byte);
      report("uninitialised-read", pc, 0,
             "read of byte %ld of threadgroup variable '%s' that no thread of the group has written", p.byte, p.name);
      x.initialised |= mask;
    }
    if ((x.written & mask) && concurrent(x.writer, x.write_epoch, x.write_simd_epoch))
      race("read", "write", byte, x.writer, x.write_pc);
    uint8_t others = 0;
    if (x.reader && x.read_epoch == epoch) {
      if (x.reader == me) others = x.other_readers & (x.read_simd_epoch == simd_epoch ? 3 : OTHER_SIMDGROUP);
      else if (!same_simdgroup(x.reader, me)) others = x.other_readers | OTHER_SIMDGROUP;
      else others = x.other_readers | (x.read_simd_epoch == simd_epoch ? OTHER_LANE : 0);
    }
    x.reader = me;
    x.read_epoch = epoch;
    x.read_simd_epoch = simd_epoch;
    x.read = mask;
    x.other_readers = others;
    x.read_pc = relative(w, pc);
  }
  void write(ThreadgroupCell &x, size_t byte, uint8_t mask, bool atomic) const {
    if (!atomic) {
      if ((x.written & mask) && concurrent(x.writer, x.write_epoch, x.write_simd_epoch))
        race("write", "write", byte, x.writer, x.write_pc);
      bool unordered = x.read_epoch == epoch && ((x.other_readers & OTHER_SIMDGROUP) ||
                                                 (x.read_simd_epoch == simd_epoch && (x.other_readers & OTHER_LANE)));
      if ((x.read & mask) && (unordered || concurrent(x.reader, x.read_epoch, x.read_simd_epoch)))
        race("write", "earlier read", byte, x.reader, x.read_pc);
    }
    x.initialised |= mask;
    x.written = atomic ? 0 : mask;
    if (atomic) return;
    x.writer = me;
    x.write_epoch = epoch;
    x.write_simd_epoch = simd_epoch;
    x.write_pc = relative(w, pc);
  }
};

struct DeviceCheck {
  Worker *w;
  Buffer *b;
  uintptr_t pc;
  uint16_t me, epoch, simd_epoch;
  uint32_t group;

  bool concurrent(uint32_t g, uint16_t thread, uint16_t e, uint16_t s) const {
    if (!g) return false;
    if (g != group) return w->job->options.device_races;
    return thread != me && e == epoch && (!same_simdgroup(thread, me) || s == simd_epoch);
  }
  void race(const char *what, const char *other, size_t byte, uint16_t thread, uint32_t g, uint32_t other_pc) const {
    report("race", pc, absolute(w, other_pc),
           "%s of buffer '%s' byte %zu races with the %s by thread %u of threadgroup %u", what, b->name, byte, other,
           thread - 1, g - 1);
  }
  void read(DeviceCell &x, size_t byte, uint8_t mask) const {
    if (b->uninitialised && w->job->options.uninitialised && (x.initialised & mask) != mask) {
      report("uninitialised-read", pc, 0, "read of byte %zu of buffer '%s' that nothing has written", byte, b->name);
      x.initialised |= mask;
    }
    if ((x.written & mask) && concurrent(x.write_group, x.writer, x.write_epoch, x.write_simd_epoch))
      race("read", "write", byte, x.writer, x.write_group, x.write_pc);
    uint8_t others = 0;
    if (x.read_group && x.read_group != group) others = x.other_readers | OTHER_GROUP;
    else if (x.read_group && x.read_epoch != epoch) others = x.other_readers & OTHER_GROUP;
    else if (x.read_group) {
      others = x.other_readers;
      if (x.reader != me) others |= same_simdgroup(x.reader, me) ? OTHER_LANE : OTHER_SIMDGROUP;
    }
    x.read_group = group;
    x.reader = me;
    x.read_epoch = epoch;
    x.read_simd_epoch = simd_epoch;
    x.read |= mask;
    x.other_readers = others;
    x.read_pc = relative(w, pc);
  }
  void write(DeviceCell &x, size_t byte, uint8_t mask, bool atomic) const {
    x.initialised |= mask;
    if (atomic) {
      x.written = 0;
      return;
    }
    if ((x.written & mask) && concurrent(x.write_group, x.writer, x.write_epoch, x.write_simd_epoch))
      race("write", "write", byte, x.writer, x.write_group, x.write_pc);
    bool other_group = w->job->options.device_races && (x.other_readers & OTHER_GROUP);
    bool other_simdgroup = x.read_group == group && x.read_epoch == epoch && (x.other_readers & OTHER_SIMDGROUP);
    if ((x.read & mask) &&
        (other_group || other_simdgroup || concurrent(x.read_group, x.reader, x.read_epoch, x.read_simd_epoch)))
      race("write", "earlier read", byte, x.reader, x.read_group, x.read_pc);
    x.write_group = group;
    x.writer = me;
    x.write_epoch = epoch;
    x.write_simd_epoch = simd_epoch;
    x.written = mask;
    x.write_pc = relative(w, pc);
  }
};

// Calls each(cell index, first byte, mask of its bytes) for the cells of WIDTH bytes that [offset, offset + n) touches.
template <size_t WIDTH, class F> void for_cells(size_t offset, size_t n, F each) {
  for (size_t c = offset / WIDTH; c <= (offset + n - 1) / WIDTH; c++) {
    size_t low = offset > c * WIDTH ? offset : c * WIDTH;
    size_t end = offset + n < (c + 1) * WIDTH ? offset + n : (c + 1) * WIDTH;
    if (!each(c, low, (uint8_t)(((1u << (end - low)) - 1) << (low % WIDTH)))) return;
  }
}
} // namespace

Buffer *search_buffer(Worker *w, uintptr_t a, size_t n) {
  for (Buffer *b : w->job->buffers)
    if (contains(b, a, n)) return w->last_buffer = b;
  return nullptr;
}

void check_threadgroup(Worker *w, size_t offset, size_t n, int access, uintptr_t pc) {
  Fiber *f = w->current;
  ThreadgroupCheck check{w, pc, (uint16_t)(f->thread.index + 1), w->threadgroup_epoch,
                         w->simdgroups[f->thread.simdgroup].threadgroup_epoch};
  for_cells<2>(offset, n, [&](size_t c, size_t byte, uint8_t mask) {
    ThreadgroupCell &x = w->cells[c];
    if (!x.valid) {
      Place p = place(w, offset);
      report("out-of-bounds", pc, 0, "%s of %zu bytes at byte %ld of threadgroup variable '%s'", VERB[access], n,
             p.byte, p.name);
      return false;
    }
    if (access == MSL_READ) check.read(x, byte, mask);
    else check.write(x, byte, mask, access == MSL_ATOMIC);
    return true;
  });
}

void check_device(Worker *w, Buffer *b, size_t offset, size_t n, int access, uintptr_t pc) {
  if (access && b->readonly) {
    report("write-to-constant", pc, 0, "write to read-only buffer '%s' byte %zu", b->name, offset);
    return;
  }
  if (!b->shadow) {
    report("unbound-buffer", pc, 0, "read of a buffer that the host did not bind, byte %zu", offset);
    return;
  }
  Fiber *f = w->current;
  DeviceCheck check{
      w,       b, pc, (uint16_t)(f->thread.index + 1), w->device_epoch, w->simdgroups[f->thread.simdgroup].device_epoch,
      w->group};
  for_cells<4>(offset, n, [&](size_t c, size_t byte, uint8_t mask) {
    if (access == MSL_READ) check.read(b->shadow[c], byte, mask);
    else check.write(b->shadow[c], byte, mask, access == MSL_ATOMIC);
    return true;
  });
}

void check_elsewhere(Worker *w, uintptr_t a, size_t n, int access, uintptr_t pc) {
  Job *job = w->job;
  for (Buffer *b : job->buffers)
    if (a + n > (uintptr_t)b->map && a < (uintptr_t)b->map + b->map_length) {
      report("out-of-bounds", pc, 0, "%s of %zu bytes at byte %ld of buffer '%s' (%zu bytes)", VERB[access], n,
             (long)(a - b->base), b->name, b->length);
      return;
    }
  uintptr_t stacks = (uintptr_t)w->stacks;
  if (a >= stacks && a < stacks + STACK_SLOT * MSL_MAX_THREADS)
    report("foreign-stack", pc, 0, "%s of another thread's private memory", VERB[access]);
  else if (a < job->image_low || a >= job->image_high)
    report("wild-access", pc, 0, "%s of %zu bytes at %p, outside every buffer", VERB[access], n, (void *)a);
  else if (access) {
    report("write-to-constant", pc, 0, "write to program-scope constant memory");
    return;
  }
  if (access == MSL_READ) return;
  // Whatever lies there belongs to another thread or to the process: the write must not happen.
  w->aborted = true;
  leave_to_main();
}

// A new dispatch sees everything that was written before: only the initialised bits stay.
void forget_dispatch(Buffer *b) {
  for (size_t i = 0; i < b->length / 4 + 2; i++) {
    DeviceCell &x = b->shadow[i];
    if (!(x.written | x.read)) continue;
    uint8_t initialised = x.initialised;
    x = {};
    x.initialised = initialised;
  }
}
} // namespace msl
