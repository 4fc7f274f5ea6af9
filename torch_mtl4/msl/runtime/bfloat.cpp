// Conversions to bfloat that clang calls and that the support libraries of older systems do not have.
#include <cstdint>
#include <cstring>

namespace {
uint16_t round_to_bfloat(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)((u >> 16) | 0x40);
  return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
} // namespace

extern "C" {
__bf16 __truncsfbf2(float f) { return __builtin_bit_cast(__bf16, round_to_bfloat(f)); }
__bf16 __trunchfbf2(_Float16 h) { return __truncsfbf2((float)h); }

__bf16 __truncdfbf2(double d) {
  float f = (float)d;
  double back = f;
  uint32_t u;
  memcpy(&u, &f, 4);
  if (back != d && !(u & 1)) { // round to odd first, else the value is rounded twice
    if ((back > d) == (d > 0)) u -= 1;
    u |= 1;
    memcpy(&f, &u, 4);
  }
  return __builtin_bit_cast(__bf16, round_to_bfloat(f));
}
}
