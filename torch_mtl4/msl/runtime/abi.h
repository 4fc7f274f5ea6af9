// The interface between compiled kernels, the runtime, and the Python side (which mirrors the structs with ctypes).
#pragma once
typedef __SIZE_TYPE__ msl_size;
typedef __UINTPTR_TYPE__ msl_uptr;

// A call that all lanes must meet at one place: clang may not duplicate it into divergent branches.
#define MSL_CONVERGENT __attribute__((convergent, noinline, nomerge, not_tail_called))
#define MSL_FROM_HERE __attribute__((nomerge, not_tail_called)) // its return address tells the line of the kernel
#define MSL_UNCHECKED __attribute__((disable_sanitizer_instrumentation))

struct MslThreadgroup { // what all threads of a threadgroup share
  unsigned tg[3];       // threadgroup_position_in_grid
  unsigned size[3];     // threads_per_threadgroup: smaller in a threadgroup at the edge of the grid
  unsigned nominal[3];  // dispatch_threads_per_threadgroup
  unsigned groups[3];   // threadgroups_per_grid
  unsigned grid[3];     // threads_per_grid
  unsigned simdgroups, threads;
  int layout, zero_cooperative; // see Options in state.h
};

struct MslThread { // what one GPU thread can ask about itself
  unsigned tid[3]; // thread_position_in_threadgroup
  unsigned index, lane, simdgroup;
  const MslThreadgroup *group;
};

struct MslTensorBinding { // a host tensor bound to a buffer index, innermost dimension first
  void *data, *scales;    // scales: one UE8M0 byte for 32 elements of the first dimension, or null
  int rank;
  long extents[8];
  long strides[8];
};

struct MslTextureBinding { // a host image: rows of pixels of `channels` components of `format`
  void *data;
  int format, channels;
  unsigned width, height, depth;
  long row_bytes, slice_bytes;
};

enum MslPixelFormat { // of each component; mirrored in textures.py
  MSL_PIXEL_FLOAT32,
  MSL_PIXEL_FLOAT16,
  MSL_PIXEL_UNORM8,
  MSL_PIXEL_SNORM8,
  MSL_PIXEL_UNORM16,
  MSL_PIXEL_SNORM16,
  MSL_PIXEL_UINT8,
  MSL_PIXEL_SINT8,
  MSL_PIXEL_UINT16,
  MSL_PIXEL_SINT16,
  MSL_PIXEL_UINT32,
  MSL_PIXEL_SINT32
};

struct MslSampler { // the enumerations are those of sampler.h; mirrored in textures.py
  int normalized, min_linear, mag_linear, address_s, address_t, border;
};

struct MslLogValue { // an argument of os_log: a scalar or a vector
  int is_real, bytes, lanes;
  double real[16];
  long whole[16];
  const char *text;
};

enum { MSL_BUFFERS = 64, MSL_THREADGROUP_BUFFERS = 31, MSL_TEXTURES = 128, MSL_SAMPLERS = 16, MSL_MAX_THREADS = 1024 };

struct MslBindings {
  void *buffer[MSL_BUFFERS];
  void *threadgroup[MSL_THREADGROUP_BUFFERS];
  const MslTensorBinding *tensor[MSL_BUFFERS];
  const MslTextureBinding *texture[MSL_TEXTURES];
  const MslSampler *sampler[MSL_SAMPLERS];
};

struct MslArg {
  short kind, index;
};
enum MslArgKind { // the numbers are those of frontend/parameters.py
  MSL_ARG_BUFFER = 0,
  MSL_ARG_THREADGROUP = 1,
  MSL_ARG_TID = 10,
  MSL_ARG_GRID_POSITION,
  MSL_ARG_TG,
  MSL_ARG_SIZE,
  MSL_ARG_NOMINAL,
  MSL_ARG_GROUPS,
  MSL_ARG_GRID,
  MSL_ARG_INDEX,
  MSL_ARG_LANE,
  MSL_ARG_SIMDGROUP,
  MSL_ARG_SIMDGROUPS,
  MSL_ARG_SIMD_WIDTH,
  MSL_ARG_QUAD_LANE,
  MSL_ARG_QUADGROUP,
  MSL_ARG_QUADGROUPS,
  MSL_ARG_TEXTURE = 40,
  MSL_ARG_SAMPLER,
  MSL_ARG_ZERO
};

typedef void (*MslEntry)(const MslBindings *);
struct MslKernel { // an element of the list that a compiled library exports
  const char *name;
  MslEntry entry;
  const MslKernel *next;
};
struct MslLibrary {
  const MslKernel *kernels;
  const void *image_begin, *image_end;
};

typedef void (*MslLanesFn)(void **lanes, unsigned mask);  // 32 payloads, null where a lane does not take part
typedef void (*MslThreadsFn)(void **threads, unsigned n); // n payloads

enum MslOperation { MSL_OP_ANY = 0, MSL_OP_UNIFORM = 1, MSL_OP_BARRIER = 2 }; // UNIFORM: all lanes must take part
enum MslAccess { MSL_READ = 0, MSL_WRITE = 1, MSL_ATOMIC = 2 };
enum MslAtomic { MSL_ATOMIC_LOAD, MSL_ATOMIC_STORE, MSL_ATOMIC_UPDATE }; // an update reads and writes
enum MslMemoryFlags { MSL_MEM_DEVICE = 1, MSL_MEM_THREADGROUP = 2 };
enum MslLayout { MSL_LAYOUT_M5 = 0, MSL_LAYOUT_PRE_M5 = 1, MSL_LAYOUT_SCRAMBLED = 2 };

extern "C" {
extern __thread MslThread *msl_current __attribute__((tls_model("initial-exec")));
// Constant during the life of a GPU thread, so calls may be merged.
unsigned msl_lane(void) __attribute__((const));
unsigned msl_thread_index(void) __attribute__((const));
unsigned msl_simdgroup(void) __attribute__((const));
unsigned msl_threads(void) __attribute__((const));
int msl_layout(void) __attribute__((const));
int msl_zero_cooperative(void) __attribute__((const));

void *msl_threadgroup_variable(const void *key, msl_size size, msl_size align, const char *name);
// `name` is what the cost of the kernel calls it; null if `combine` counts for itself.
MSL_CONVERGENT void msl_simd_op(int operation, const char *name, void *payload, MslLanesFn combine);
MSL_CONVERGENT void msl_group_op(void *payload, MslThreadsFn combine);
MSL_FROM_HERE void msl_thread_op(void *payload, MslThreadsFn combine);
MSL_CONVERGENT void msl_threadgroup_barrier(unsigned flags);
MSL_CONVERGENT void msl_simdgroup_barrier(unsigned flags);
MSL_FROM_HERE void msl_check(const void *address, msl_size size, int access);
MSL_FROM_HERE void msl_atomic(const void *address, msl_size size, int kind, const char *name);
void msl_count_products(const char *types, msl_size multiply_accumulates);
MSL_FROM_HERE void msl_report(const char *kind, const char *format, ...);
[[noreturn]] void msl_fail(const char *kind, const char *format, ...); // and the dispatch ends
MSL_FROM_HERE void msl_log(int level, const char *subsystem, const char *category, const char *format,
                           const MslLogValue *values, int n);
void msl_yield(void);
void *msl_scratch(msl_size size);
void msl_multiply_float(const float *a, const float *b, float *c, int m, int n, int k);
void msl_multiply_int(const int *a, const int *b, int *c, int m, int n, int k);
}
