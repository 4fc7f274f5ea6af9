// What the host tells the kernels of mxfp8_linear.
#pragma once

#include "common/host_device.h"

struct Mxfp8LinearParams {
  int64_t m, n, k;                                   // x [m, k] and out [m, n] are dense
  int64_t weight_stride, scale_stride, bias_stride;  // from row to row, in bytes; from element to element
  int64_t first_row, first_column;                   // of out: where the grid begins
};
