// Calls a kernel in the namespace of the instruction set that isa() names.
#pragma once

#include "cpu/isa.h"

#define MTL4_CASE_ISA(name, kernel, ...)    \
  case ::mtl4::cpu::Isa::name:              \
    ::mtl4::cpu::name::kernel(__VA_ARGS__); \
    break;

#if defined(__x86_64__)
#define MTL4_CASES_OF_TARGET(kernel, ...)         \
  MTL4_CASE_ISA(avx2, kernel, __VA_ARGS__)        \
  MTL4_CASE_ISA(avx512, kernel, __VA_ARGS__)      \
  MTL4_CASE_ISA(avx512_bf16, kernel, __VA_ARGS__) \
  MTL4_CASE_ISA(amx, kernel, __VA_ARGS__)
#elif defined(__aarch64__)
#define MTL4_CASES_OF_TARGET(kernel, ...) MTL4_CASE_ISA(neon, kernel, __VA_ARGS__)
#else
#define MTL4_CASES_OF_TARGET(kernel, ...)
#endif

#define MTL4_DISPATCH_ISA(kernel, ...)            \
  switch (::mtl4::cpu::isa()) {                   \
    MTL4_CASES_OF_TARGET(kernel, __VA_ARGS__)     \
    default:                                      \
      ::mtl4::cpu::baseline::kernel(__VA_ARGS__); \
  }
