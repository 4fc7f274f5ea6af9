// Elementary functions on vectors of floats.
#pragma once

#include "cpu/kernels/vec.h"

namespace mtl4::cpu::MTL4_ISA {

// 2^x within 1 ulp; exactly 1 at 0, exactly 0 below -126.5, a NaN stays one. x must be below 128.
//
// 2^x = 2^n * 2^f with n the nearest integer: adding 1.5 * 2^23 leaves n in the lowest bits of the sum, and adding 127
// more leaves the exponent field of 2^n there. The polynomial is a minimax fit of 2^f on [-0.5, 0.5] in relative error
// with the constant term held at 1.
MTL4_INLINE vf exp2(vf x) {
  constexpr float kRound = 0x1.8p23f + 127;
  x = max(splat(-127.0f), x);
  const vf sum = x + kRound, f = x - (sum - kRound);
  vf p = splat(0x1.41fbcep-13f);
  p = fma(p, f, splat(0x1.5f3e54p-10f));
  p = fma(p, f, splat(0x1.3b2d4cp-7f));
  p = fma(p, f, splat(0x1.c6aee8p-5f));
  p = fma(p, f, splat(0x1.ebfbdcp-3f));
  p = fma(p, f, splat(0x1.62e430p-1f));
  p = fma(p, f, splat(1.0f));
  return p * bits_as<vf>(bits_as<vu>(sum) << 23);
}

constexpr float kLog2e = 0x1.715476p0f, kLn2 = 0x1.62e430p-1f;

// tanh within a few ulp: an odd minimax polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel.
MTL4_INLINE vf tanh(vf x) {
  const vf z = x * x;
  vf p = splat(-0.005515164f);
  p = fma(p, z, splat(0.02046942f));
  p = fma(p, z, splat(-0.053688023f));
  p = fma(p, z, splat(0.1333083f));
  p = fma(p, z, splat(-0.3333326f));
  const vf near = fma(p * z, x, x);
  const vf e = exp2(abs(x) * (-2 * kLog2e));
  const vf magnitude = (1.0f - e) / (1.0f + e);
  const vf far = bits_as<vf>(bits_as<vu>(magnitude) | (bits_as<vu>(x) & 0x80000000u));
  return select(abs(x) < 0.625f, near, far);
}

}  // namespace mtl4::cpu::MTL4_ISA
