// Where the kernels of a pipeline find their params.
#pragma once

#include "mxfp8_dequantize/params.h"

using ParamsRef = constant Mxfp8DequantizeParams&;
