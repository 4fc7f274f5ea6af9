// Scratch memory of a kernel, aligned to a cache line and not initialised.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

#include "cpu/kernels/vec.h"

namespace mtl4::cpu::MTL4_ISA {

template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t n) : data_(nullptr) {
    void* p = nullptr;
    if (n > 0 && posix_memalign(&p, 64, static_cast<size_t>(n) * sizeof(T)) != 0) throw std::bad_alloc();
    data_ = static_cast<T*>(p);
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  MTL4_INLINE T* get() const { return data_; }

 private:
  T* data_;
};

}  // namespace mtl4::cpu::MTL4_ISA
