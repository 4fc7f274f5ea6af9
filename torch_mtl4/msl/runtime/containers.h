// What the runtime would otherwise take from the C++ library, whose linking the smallest toolchains do not offer.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <pthread.h>

namespace msl {

template <class T> T smaller(T a, T b) { return b < a ? b : a; }
template <class T> T larger(T a, T b) { return a < b ? b : a; }

// All types of the runtime begin life as zeros.
template <class T> T *make_zeroed(size_t count = 1) {
  T *p = (T *)calloc(count, sizeof(T));
  if (!p) abort();
  return p;
}

// A growing array of plain data; zeros are an empty one. The owner calls `release`.
template <class T> struct List {
  T *data;
  size_t count, room;

  T *begin() const { return data; }
  T *end() const { return data + count; }
  T &operator[](size_t i) const { return data[i]; }
  void clear() { count = 0; }
  void push(const T &x) {
    if (count == room) {
      room = room ? 2 * room : 16;
      data = (T *)realloc((void *)data, room * sizeof(T));
      if (!data) abort();
    }
    data[count++] = x;
  }
  T pop() { return data[--count]; }
  void release() {
    free((void *)data);
    *this = {};
  }
};

struct Lock { // held as long as it lives
  pthread_mutex_t *mutex;
  explicit Lock(pthread_mutex_t &m) : mutex(&m) { pthread_mutex_lock(mutex); }
  ~Lock() { pthread_mutex_unlock(mutex); }
  Lock(const Lock &) = delete;
};

} // namespace msl
