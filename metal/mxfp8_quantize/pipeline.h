// What a pipeline knows when it is built, and where its kernels find their params.
#pragma once

#include "mxfp8_quantize/params.h"

constant int scaling [[function_constant(0)]];

using ParamsRef = constant Mxfp8QuantizeParams&;
