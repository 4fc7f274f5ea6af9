// Which element types matmul2d multiplies with which, and since which macOS. The table is that of the headers of
// macOS 27; the rows for macOS 26.1 and 26.4 are dated by header comparisons and Apple's technical talks.
#pragma once
#include "element_names.h"
#include "tier.h"
namespace msl {
// The element types of operands as bits, so that a row of the table can name several.
enum Element : unsigned {
  NO_ELEMENT = 0,
  HALF = 1,
  BFLOAT = 2,
  FLOAT = 4,
  INT8 = 8,
  UINT8 = 16,
  INT32 = 32,
  INT4 = 64,
  UINT4 = 128,
  INT2 = 256,
  UINT2 = 512,
  FP4 = 1024,
  E4M3 = 2048,
  E5M2 = 4096,
};

template <class T> constexpr unsigned element_of = NO_ELEMENT;
template <> inline constexpr unsigned element_of<half> = HALF;
template <> inline constexpr unsigned element_of<bfloat> = BFLOAT;
template <> inline constexpr unsigned element_of<float> = FLOAT;
template <> inline constexpr unsigned element_of<int8_t> = INT8;
template <> inline constexpr unsigned element_of<uint8_t> = UINT8;
template <> inline constexpr unsigned element_of<int32_t> = INT32;
template <> inline constexpr unsigned element_of<int4b> = INT4;
template <> inline constexpr unsigned element_of<uint4b> = UINT4;
template <> inline constexpr unsigned element_of<int2b> = INT2;
template <> inline constexpr unsigned element_of<uint2b> = UINT2;
template <> inline constexpr unsigned element_of<fp4_e2m1> = FP4;
template <> inline constexpr unsigned element_of<fp8_e4m3> = E4M3;
template <> inline constexpr unsigned element_of<fp8_e5m2> = E5M2;

struct TypeRow {
  unsigned left, right, destination;
  int macos;
};
inline constexpr TypeRow type_rows[] = {
    {HALF, HALF, HALF | FLOAT, 2600},
    {HALF, INT8, HALF | FLOAT, 2600},
    {INT8, HALF, HALF | FLOAT, 2600},
    {HALF, FLOAT, FLOAT, 2600},
    {FLOAT, HALF | FLOAT | INT8, FLOAT, 2600},
    {INT8, FLOAT, FLOAT, 2600},
    {INT8, INT8, INT32, 2600},
    {BFLOAT, BFLOAT | INT8, BFLOAT | FLOAT, 2601},
    {BFLOAT, FLOAT, FLOAT, 2601},
    {FLOAT, BFLOAT, FLOAT, 2601},
    {INT8, BFLOAT, BFLOAT | FLOAT, 2601},
    {BFLOAT, HALF, BFLOAT | HALF | FLOAT, 2601},
    {HALF, BFLOAT, BFLOAT | HALF | FLOAT, 2601},
    {HALF, UINT8 | INT4 | UINT4, HALF | FLOAT, 2604},
    {UINT8, HALF, HALF | FLOAT, 2604},
    {FLOAT, UINT8, FLOAT, 2604},
    {UINT8, FLOAT, FLOAT, 2604},
    {UINT8, UINT8 | UINT4, INT32, 2604},
    {INT8, INT4, INT32, 2604},
    {BFLOAT, UINT8 | INT4 | UINT4, BFLOAT | FLOAT, 2604},
    {UINT8, BFLOAT, BFLOAT | FLOAT, 2604},
    {INT8, INT2, INT32, 2700},
    {UINT8, UINT2, INT32, 2700},
    {HALF, INT2 | UINT2 | FP4 | E4M3 | E5M2, HALF | FLOAT, 2700},
    {BFLOAT, INT2 | UINT2, BFLOAT | FLOAT, 2700},
    {FP4, FP4, HALF | FLOAT, 2700},
    {E4M3, E4M3, HALF | FLOAT, 2700},
    {E5M2, E5M2, HALF | FLOAT, 2700},
};

// The macOS that has this combination, as major * 100 + minor; 0 if none has it.
template <class L, class R, class D> constexpr int types_since() {
  for (const TypeRow &row : type_rows)
    if ((row.left & element_of<L>) && (row.right & element_of<R>) && (row.destination & element_of<D>))
      return row.macos;
  return 0;
}
template <class L, class R, class D> constexpr Text types_message() {
  Text types = element_name<L>() + " x " + element_name<R>() + " -> " + element_name<D>();
  int since = types_since<L, R, D>();
  if (!since) return Text("matmul2d: ") + types + " is not in the table of element types";
  return Text("matmul2d: ") + types + " needs macOS " + Text::number(since / 100) + "." + Text::number(since % 100) +
         (since == 2700 ? " and MSL 4.1" : "") + "; the tier is " MSL_TIER;
}
template <class L, class R, class D> constexpr bool types_legal() {
  int since = types_since<L, R, D>();
  return since && since <= MSL_MACOS && (since < 2700 || MSL_METAL_VERSION >= 410);
}
template <class L, class R, class D> constexpr void assert_types() {
  static_assert(types_legal<L, R, D>(), types_message<L, R, D>());
}
} // namespace msl
