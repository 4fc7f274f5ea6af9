// From a dtype known at run time to the element type of the kernels.
#pragma once

#include <torch/headeronly/core/ScalarType.h>

#include "cpu/kernels/vec.h"

namespace mtl4::cpu::MTL4_ISA {

// Calls f with a value of the element type: float, fp16 or bf16. The contracts let no other dtype through.
template <typename F>
MTL4_INLINE void by_dtype(torch::headeronly::ScalarType dtype, F&& f) {
  if (dtype == torch::headeronly::ScalarType::Float) return f(float{});
  if (dtype == torch::headeronly::ScalarType::Half) return f(fp16{});
  f(bf16{});
}

}  // namespace mtl4::cpu::MTL4_ISA
