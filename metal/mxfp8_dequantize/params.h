// What the host tells mxfp8_dequantize.
#pragma once

#include "common/host_device.h"

struct Mxfp8DequantizeParams {
  int64_t rows, k;                  // of data, dense; a row has ceil(k / 32) scale bytes
  int64_t first_row, first_column;  // of the grid
};
