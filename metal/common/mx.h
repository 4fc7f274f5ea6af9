// The number formats of MX blocks: e4m3 elements and e8m0 scales (OCP Microscaling Formats v1.0, 5.3 and 5.4).
//
// A GPU may take subnormal floats and halves for zero, and its compiler may assume that there is no NaN and reorder
// products. So NaN is made from its bits, and whatever may be subnormal is computed with integers.
#pragma once

#include <metal_stdlib>

constant constexpr int kMxBlock = 32;
constant constexpr uchar kE4m3Nan = 0x7f;  // with either sign
constant constexpr uchar kE8m0Nan = 0xff;
constant constexpr uint kFloatNan = 0x7fc00000;
