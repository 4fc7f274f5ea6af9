// The namespaces fast and precise: here both compute what the plain functions do.
#pragma once
#include "math.h"
#include "relational.h"
#include "geometric.h"
namespace metal {
namespace fast {
MSL_F1_ALL MSL_F2_ALL using metal::min;
using metal::abs;
using metal::clamp;
using metal::dot;
using metal::fma;
using metal::isnan;
using metal::length;
using metal::max;
using metal::normalize;
using metal::sincos;
MSL_INLINE float divide(float a, float b) { return a / b; }
} // namespace fast
namespace precise {
MSL_F1_ALL MSL_F2_ALL using metal::min;
using metal::abs;
using metal::clamp;
using metal::fma;
using metal::isnan;
using metal::max;
using metal::normalize;
using metal::sincos;
MSL_INLINE float divide(float a, float b) { return a / b; }
} // namespace precise
MSL_INLINE float divide(float a, float b) { return a / b; }
MSL_INLINE half divide(half a, half b) { return a / b; }
} // namespace metal
