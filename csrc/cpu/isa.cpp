#include "isa.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mtl4::cpu {
namespace {

constexpr Isa kAll[] = {Isa::baseline, Isa::neon, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};

#if defined(__x86_64__)
bool has_amx() {
#if defined(MTL4_SOFTWARE_AMX)
  return true;
#elif defined(__linux__) && defined(SYS_arch_prctl)
  // The kernel enables the tile registers per process and on request only: ARCH_REQ_XCOMP_PERM for XTILEDATA
  // (Linux Documentation/arch/x86/xstate.rst).
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool has(Isa isa) {
  __builtin_cpu_init();
  switch (isa) {
    case Isa::baseline:
      return true;
    case Isa::neon:
      return false;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::avx512:
      return has(Isa::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    case Isa::avx512_bf16:
      return has(Isa::avx512) && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
    case Isa::amx:
      return has(Isa::avx512_bf16) && has_amx();
  }
  return false;
}
#elif defined(__aarch64__)
bool has(Isa isa) { return isa == Isa::baseline || isa == Isa::neon; }
#else
bool has(Isa isa) { return isa == Isa::baseline; }
#endif

Isa detect() {
  const char* wanted = std::getenv("TORCH_MTL4_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') {
    Isa best = Isa::baseline;
    for (Isa isa : kAll)
      if (has(isa)) best = isa;
    return best;
  }
  for (Isa isa : kAll) {
    if (isa_name(isa) != wanted) continue;
    if (has(isa)) return isa;
    throw std::runtime_error(std::string("TORCH_MTL4_CPU_ISA: this machine has no ") + wanted);
  }
  throw std::runtime_error(
      std::string("TORCH_MTL4_CPU_ISA: expected baseline, neon, avx2, avx512, avx512_bf16 or amx, got ") + wanted);
}

}  // namespace

Isa isa() {
  static const Isa chosen = detect();
  return chosen;
}

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::neon:
      return "neon";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::amx:
      return "amx";
  }
  return "unknown";
}

}  // namespace mtl4::cpu
