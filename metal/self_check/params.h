// Sizes of the self-checks, and what the host tells their kernels.
#pragma once

#include "common/host_device.h"

// A simdgroup's rows in attention, the last three of which do not exist; two tiles of keys; columns of out that fill a
// tile and a part of the next. Rows with a product so large are doubled in the end.
struct SelfCheckRows {
  enum { rows = 13, keys = 64, head_dim = 40, value_dim = 40, doubled_from = 10 };
};

// One matrix of logits, of seven rows, and one of out.
struct SelfCheckFragments {
  enum { rows = 7, keys = 8, head_dim = 16, value_dim = 8 };
};

// Values for the quantizer: `rows` rows of two blocks and a quarter.
struct SelfCheckQuantize {
  enum { rows = 64, k = 72, modes = 4 };
};

struct SelfCheckRowsParams {
  int32_t in_memory;  // the weights go through threadgroup memory, as if they did not lie alike
};
