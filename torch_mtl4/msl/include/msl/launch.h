// Binds the arguments of a kernel: buffers, threadgroup memory, tensors, positions.
#pragma once
#include "tensors.h"
#include "texture.h"
namespace msl {
using namespace metal;

template <class T> MSL_INLINE T &threadgroup_variable(const void *key, const char *name) {
  static_assert(sizeof(T) <= 32768, "threadgroup memory is limited to 32768 bytes");
  return *(T *)msl_threadgroup_variable(key, sizeof(T), alignof(T), name);
}

// A position attribute as the type that the kernel declared: a scalar or a vector of some width.
template <class T> MSL_UNCHECKED inline T position(const unsigned *v) {
  if constexpr (is_vec_<T>::value) {
    T r;
    for (unsigned i = 0; i < sizeof(r.d) / sizeof(r.d[0]); i++) r.d[i] = (typename T::value_type)v[i];
    return r;
  } else return (T)v[0];
}
template <class T> MSL_UNCHECKED inline T position(MslArg arg) {
  const MslThread *t = msl_current;
  const MslThreadgroup *g = t->group;
  switch (arg.kind) {
  case MSL_ARG_TID: return position<T>(t->tid);
  case MSL_ARG_GRID_POSITION: {
    unsigned p[3];
    for (int d = 0; d < 3; d++) p[d] = g->tg[d] * g->nominal[d] + t->tid[d];
    return position<T>(p);
  }
  case MSL_ARG_TG: return position<T>(g->tg);
  case MSL_ARG_SIZE: return position<T>(g->size);
  case MSL_ARG_NOMINAL: return position<T>(g->nominal);
  case MSL_ARG_GROUPS: return position<T>(g->groups);
  case MSL_ARG_GRID: return position<T>(g->grid);
  }
  unsigned scalar[3] = {};
  switch (arg.kind) {
  case MSL_ARG_INDEX: scalar[0] = t->index; break;
  case MSL_ARG_LANE: scalar[0] = t->lane; break;
  case MSL_ARG_SIMDGROUP: scalar[0] = t->simdgroup; break;
  case MSL_ARG_SIMDGROUPS: scalar[0] = g->simdgroups; break;
  case MSL_ARG_SIMD_WIDTH: scalar[0] = 32; break;
  case MSL_ARG_QUAD_LANE: scalar[0] = t->index & 3; break;
  case MSL_ARG_QUADGROUP: scalar[0] = t->index >> 2; break;
  case MSL_ARG_QUADGROUPS: scalar[0] = (g->threads + 3) >> 2; break;
  }
  return position<T>(scalar);
}

MSL_UNCHECKED inline void *pointer(const MslBindings *b, MslArg arg) {
  return arg.kind == MSL_ARG_THREADGROUP ? b->threadgroup[arg.index] : b->buffer[arg.index];
}

template <class T> struct Fetch {
  MSL_UNCHECKED static T get(const MslBindings *, MslArg arg) {
    if constexpr (is_class_v<T> && !is_vec_<T>::value) return T{};
    else return position<T>(arg);
  }
};
template <class T> struct Fetch<T *> {
  MSL_UNCHECKED static T *get(const MslBindings *b, MslArg arg) { return (T *)pointer(b, arg); }
};
template <class T> struct Fetch<T &> {
  MSL_UNCHECKED static T &get(const MslBindings *b, MslArg arg) { return *(T *)pointer(b, arg); }
};
template <class T, access A> struct Fetch<texture2d<T, A>> {
  MSL_UNCHECKED static texture2d<T, A> get(const MslBindings *b, MslArg arg) { return {{b->texture[arg.index]}}; }
};
template <class T, access A> struct Fetch<texture2d_array<T, A>> {
  MSL_UNCHECKED static texture2d_array<T, A> get(const MslBindings *b, MslArg arg) { return {{b->texture[arg.index]}}; }
};
template <> struct Fetch<sampler> {
  MSL_UNCHECKED static sampler get(const MslBindings *b, MslArg arg) {
    sampler s;
    if (b->sampler[arg.index]) s.state_ = *b->sampler[arg.index];
    else msl_report("binding", "no sampler bound at index %d", arg.index);
    return s;
  }
};

#if MSL_HAS(400, 2600)
template <class T, class E, class D, class... Tags> struct Fetch<tensor<T, E, D, Tags...>> {
  MSL_UNCHECKED static tensor<T, E, D, Tags...> get(const MslBindings *b, MslArg arg) {
    static_assert(is_same_v<D, tensor_handle>, "a tensor that is a parameter of a kernel is a tensor_handle");
    tensor<T, E, D, Tags...> t;
    t.binding_ = b->tensor[arg.index];
    bound(t.binding_);
    return t;
  }
};
#endif

template <auto Function, const MslArg *Args> struct Launch;
template <class... P, void (*Function)(P...), const MslArg *Args> struct Launch<Function, Args> {
  template <size_t... I> MSL_INLINE static void call(const MslBindings *b, index_sequence<I...>) {
    [[clang::noinline]] Function(Fetch<P>::get(b, Args[I])...); // its frame keeps the line of the kernel
  }
  static void run(const MslBindings *b) { call(b, make_index_sequence<sizeof...(P)>{}); }
};

// The kernels of this library, as a list that grows while its static objects are made.
inline __attribute__((visibility("hidden"))) const MslKernel *kernel_list = nullptr;
struct KernelEntry {
  MslKernel kernel;
  KernelEntry(const char *name, MslEntry entry) : kernel{name, entry, kernel_list} { kernel_list = &kernel; }
};
} // namespace msl

extern "C" {
extern const char __ehdr_start __attribute__((visibility("hidden")));
extern const char _end __attribute__((visibility("hidden")));
__attribute__((used)) inline MslLibrary msl_library() { return {msl::kernel_list, &__ehdr_start, &_end}; }
}
