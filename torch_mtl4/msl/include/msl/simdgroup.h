// metal_simdgroup, metal_quadgroup: values travel between lanes.
#pragma once
#include "lanes.h"
namespace msl {
// SOURCE(lane, argument, width) is the lane that is read, within its simdgroup or quadgroup; -1 is "keep your own".
template <int WIDTH, class Source> struct Shuffle {
  template <class T> MSL_UNCHECKED static void run(const Lanes<T> &lanes) {
    lanes.each([&](int i) {
      int base = i & ~(WIDTH - 1), from = Source::lane(i - base, lanes[i].argument, WIDTH);
      if (from < 0 || from >= WIDTH) return;
      if (lanes.active(base + from)) lanes[i].out = lanes[base + from].in;
      else
        msl_report("inactive-lane", "%s_%s reads lane %d which is not active (mask %08x)",
                   WIDTH == SIMD ? "simd" : "quad", Source::name, base + from, lanes.mask);
    });
  }
};
#define MSL_SOURCE(type, text, expression) \
  struct type { \
    static constexpr const char *name = text; \
    static int lane(int i, int k, int width) { return expression; } \
  };
MSL_SOURCE(FromLane, "shuffle", k &(width - 1))
MSL_SOURCE(FromBroadcast, "broadcast", k &(width - 1))
MSL_SOURCE(FromXor, "shuffle_xor", (i ^ k) & (width - 1))
MSL_SOURCE(FromBelow, "shuffle_up", i - k)
MSL_SOURCE(FromAbove, "shuffle_down", i + k)
MSL_SOURCE(FromBelowAround, "shuffle_rotate_up", (i - k) & (width - 1))
MSL_SOURCE(FromAboveAround, "shuffle_rotate_down", (i + k) & (width - 1))
#undef MSL_SOURCE

template <int WIDTH> struct BroadcastFirst {
  template <class T> MSL_UNCHECKED static void run(const Lanes<T> &lanes) {
    lanes.each([&](int i) {
      int base = i & ~(WIDTH - 1);
      unsigned group = WIDTH == SIMD ? lanes.mask : lanes.mask >> base & 15;
      lanes[i].out = lanes[base + __builtin_ctz(group)].in;
    });
  }
};

template <class T> struct Filling { // the window of `modulo` lanes slides over data and, beyond its end, over fill
  T data, fill;
};
template <int WIDTH, int DIRECTION> struct ShuffleAndFill {
  template <class T> MSL_UNCHECKED static void run(const Lanes<Filling<T>> &lanes) {
    lanes.each([&](int i) {
      int modulo = lanes[i].argument >> 8, delta = lanes[i].argument & 255;
      int base = i & ~(modulo - 1), from = i - base + DIRECTION * delta;
      bool filled = from < 0 || from >= modulo;
      int source = base + (from & (modulo - 1));
      if (!lanes.active(source)) {
        msl_report("inactive-lane", "shuffle_and_fill reads lane %d which is not active (mask %08x)", source,
                   lanes.mask);
        return;
      }
      lanes[i].out.data = filled ? lanes[source].in.fill : lanes[source].in.data;
    });
  }
};
} // namespace msl

namespace metal {
#define MSL_SHUFFLE(name, WIDTH, SOURCE) \
  template <class T> MSL_INLINE T name(T x, ushort k) { \
    return msl::lane_operation<msl::Shuffle<WIDTH, msl::SOURCE>>(#name, x, (int)k); \
  }
#define MSL_SHUFFLES(prefix, WIDTH) \
  MSL_SHUFFLE(prefix##_shuffle, WIDTH, FromLane) \
  MSL_SHUFFLE(prefix##_broadcast, WIDTH, FromBroadcast) \
  MSL_SHUFFLE(prefix##_shuffle_xor, WIDTH, FromXor) \
  MSL_SHUFFLE(prefix##_shuffle_up, WIDTH, FromBelow) \
  MSL_SHUFFLE(prefix##_shuffle_down, WIDTH, FromAbove) \
  MSL_SHUFFLE(prefix##_shuffle_rotate_up, WIDTH, FromBelowAround) \
  MSL_SHUFFLE(prefix##_shuffle_rotate_down, WIDTH, FromAboveAround) \
  template <class T> MSL_INLINE T prefix##_broadcast_first(T x) { \
    return msl::lane_operation<msl::BroadcastFirst<WIDTH>>(#prefix "_broadcast_first", x); \
  } \
  template <class T> MSL_INLINE T prefix##_shuffle_and_fill_up(T x, T fill, ushort k, ushort modulo = WIDTH) { \
    return msl::lane_operation<msl::ShuffleAndFill<WIDTH, -1>>(#prefix "_shuffle_and_fill_up", \
                                                               msl::Filling<T>{x, fill}, modulo << 8 | k) \
        .data; \
  } \
  template <class T> MSL_INLINE T prefix##_shuffle_and_fill_down(T x, T fill, ushort k, ushort modulo = WIDTH) { \
    return msl::lane_operation<msl::ShuffleAndFill<WIDTH, 1>>(#prefix "_shuffle_and_fill_down", \
                                                              msl::Filling<T>{x, fill}, modulo << 8 | k) \
        .data; \
  }
MSL_SHUFFLES(simd, msl::SIMD)
MSL_SHUFFLES(quad, msl::QUAD)
#undef MSL_SHUFFLES
#undef MSL_SHUFFLE
} // namespace metal
