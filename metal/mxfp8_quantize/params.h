// What the host tells mxfp8_quantize.
#pragma once

#include "common/host_device.h"

// Values of the function constant `scaling`, index 0.
enum Mxfp8Scaling { kMxfp8ScalingFloor, kMxfp8ScalingRceil, kMxfp8ScalingCeil, kMxfp8ScalingEven };

struct Mxfp8QuantizeParams {
  int64_t rows, k;                  // of x, dense; a row has ceil(k / 32) scale bytes
  int64_t first_row, first_column;  // of the grid
};
