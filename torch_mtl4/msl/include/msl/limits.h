// metal_limits.
#pragma once
#include "scalar.h"
namespace metal {
template <class T> struct numeric_limits;
#define MSL_NLI(t, mn, mx, sg) \
  template <> struct numeric_limits<t> { \
    static constexpr bool is_specialized = true, is_integer = true, is_signed = sg, has_infinity = false; \
    static constexpr int digits = __is_same(t, bool) ? 1 : sizeof(t) * 8 - sg; \
    static constexpr t max() { return (t)(mx); } \
    static constexpr t min() { return (t)(mn); } \
    static constexpr t lowest() { return (t)(mn); } \
    static constexpr t infinity() { return 0; } \
    static constexpr t epsilon() { return 0; } \
    static constexpr t quiet_NaN() { return 0; } \
  };
MSL_NLI(bool, 0, 1, 0)
MSL_NLI(char, -128, 127, 1) MSL_NLI(signed char, -128, 127, 1) MSL_NLI(uchar, 0, 255, 0)
    MSL_NLI(short, -32768, 32767, 1) MSL_NLI(ushort, 0, 65535, 0) MSL_NLI(int, (-2147483647 - 1), 2147483647, 1)
        MSL_NLI(uint, 0, 4294967295u, 0) MSL_NLI(long, (-9223372036854775807L - 1), 9223372036854775807L, 1)
            MSL_NLI(ulong, 0, 18446744073709551615ul, 0)
                MSL_NLI(long long, (-9223372036854775807L - 1), 9223372036854775807L, 1)
                    MSL_NLI(unsigned long long, 0, 18446744073709551615ul, 0)
#define MSL_NLF(t, mn, mx, eps, dg, d10) \
  template <> struct numeric_limits<t> { \
    static constexpr bool is_specialized = true, is_integer = false, is_signed = true, has_infinity = true; \
    static constexpr int digits = dg, max_digits10 = d10; \
    static constexpr t max() { return (t)(mx); } \
    static constexpr t min() { return (t)(mn); } \
    static constexpr t lowest() { return (t)(-(mx)); } \
    static constexpr t infinity() { return (t)__builtin_inff(); } \
    static constexpr t epsilon() { return (t)(eps); } \
    static constexpr t quiet_NaN() { return (t)__builtin_nanf(""); } \
    static constexpr t signaling_NaN() { return (t)__builtin_nanf(""); } \
    static constexpr t denorm_min() { return (t)(mn * eps); } \
  };
                        MSL_NLF(float, 1.17549435e-38f, 3.40282347e+38f, 1.19209290e-07f, 24, 9)
                            MSL_NLF(half, 6.103515625e-05f, 65504.0f, 0.0009765625f, 11, 5)
                                MSL_NLF(bfloat, 1.17549435e-38f, 3.38953139e+38f, 0.0078125f, 8, 4)
} // namespace metal
