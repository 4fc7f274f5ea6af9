// metal_simdgroup, metal_quadgroup: votes, and which lanes are active.
#pragma once
#include "lanes.h"
namespace msl {
struct Ballot { // bit i of the result is the vote of lane i of the simdgroup
  MSL_UNCHECKED static void run(const Lanes<ulong> &lanes) {
    ulong votes = 0;
    lanes.each([&](int i) { votes |= (ulong)(lanes[i].in != 0) << i; });
    lanes.each([&](int i) { lanes[i].out = votes | (ulong)lanes.mask << 32; });
  }
};
struct Votes {
  uint yes, active;
};
// Of the whole simdgroup, or of the quadgroup of this lane moved to the low bits.
template <int WIDTH> MSL_INLINE Votes votes(const char *name, bool vote) {
  ulong both = lane_operation<Ballot>(name, (ulong)vote);
  Votes v{(uint)both, (uint)(both >> 32)};
  if (WIDTH == SIMD) return v;
  int base = msl_lane() & ~3;
  return {v.yes >> base & 15, v.active >> base & 15};
}
} // namespace msl

namespace metal {
template <class V, int WIDTH> struct vote_ {
  using vote_t = V;
  vote_t v;
  constexpr explicit vote_(vote_t x = 0) : v(x) {}
  constexpr explicit operator vote_t() const { return v; }
  constexpr bool all() const { return (uint)v == (WIDTH == msl::SIMD ? ~0u : 15u); }
  constexpr bool any() const { return v != 0; }
};
struct simd_vote : vote_<ulong, msl::SIMD> {
  using vote_::vote_;
};
struct quad_vote : vote_<ushort, msl::QUAD> {
  using vote_::vote_;
};

#define MSL_VOTES(prefix, WIDTH) \
  MSL_INLINE prefix##_vote prefix##_ballot(bool b) { \
    return prefix##_vote(msl::votes<WIDTH>(#prefix "_ballot", b).yes); \
  } \
  MSL_INLINE prefix##_vote prefix##_active_threads_mask() { \
    return prefix##_vote(msl::votes<WIDTH>(#prefix "_active_threads_mask", true).active); \
  } \
  MSL_INLINE bool prefix##_all(bool b) { \
    msl::Votes v = msl::votes<WIDTH>(#prefix "_all", b); \
    return v.yes == v.active; \
  } \
  MSL_INLINE bool prefix##_any(bool b) { return msl::votes<WIDTH>(#prefix "_any", b).yes != 0; } \
  MSL_INLINE bool prefix##_is_first() { \
    return (int)(msl_lane() & (WIDTH - 1)) == __builtin_ctz(msl::votes<WIDTH>(#prefix "_is_first", true).active); \
  } \
  MSL_INLINE bool prefix##_is_helper_thread() { return false; }
MSL_VOTES(simd, msl::SIMD)
MSL_VOTES(quad, msl::QUAD)
#undef MSL_VOTES
} // namespace metal
