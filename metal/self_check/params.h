// The product that a self-check computes: left [m, k] times right [n, k], transposed.
#pragma once

struct SelfCheckSizes {
  enum { m = 32, n = 32, k = 128, scale_block = 32 };
};
