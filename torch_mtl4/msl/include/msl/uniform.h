// Words that only guide the optimiser.
#pragma once
#include "scalar.h"
namespace metal {
template <class T> using uniform = T;
template <class T> MSL_INLINE constexpr T make_uniform(T x) { return x; }
} // namespace metal
