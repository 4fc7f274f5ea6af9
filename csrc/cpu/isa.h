// Which instruction set the CPU kernels use. Each file of csrc/cpu/kernels is compiled once per instruction set, inside
// the namespace named by MTL4_ISA; the callers pick one of those namespaces at run time.
#pragma once

#include <string_view>

namespace mtl4::cpu {

// In order of preference on x86-64. Baseline is plain C++ and exists on every machine.
enum class Isa { baseline, neon, avx2, avx512, avx512_bf16, amx };

// The best instruction set that this machine has, capped by the environment variable TORCH_MTL4_CPU_ISA (read once).
// Throws std::runtime_error when the variable names an unknown set or one that this machine lacks.
Isa isa();

std::string_view isa_name(Isa isa);

}  // namespace mtl4::cpu
