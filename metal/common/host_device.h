// Words that mean the same to the host's C++ compiler and to Metal's, for the params structs that both read.
#pragma once

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <cstdint>
#endif
