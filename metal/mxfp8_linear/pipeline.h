// What a pipeline knows when it is built, and where its kernels find their params.
#pragma once

#include "mxfp8_linear/params.h"

constant bool has_bias [[function_constant(0)]];
constant bool aligned [[function_constant(1)]];  // rows of the weight begin at multiples of 16 bytes
constant int split [[function_constant(2)]];     // of mxfp8_gemv: 1, 2, 4 or 8 simdgroups share k

using ParamsRef = constant Mxfp8LinearParams&;
