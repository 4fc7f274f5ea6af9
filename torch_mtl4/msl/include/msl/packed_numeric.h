// metal_packed_numeric: N values of a format in the bytes that hold them; unpack decodes, pack encodes.
#pragma once
#include "formats.h"
#include "vector.h"
namespace msl {
template <class F, int N> struct Packed {
  static_assert(Format<F>, "packed_numeric_type: the first argument is an element format");
  static_assert(N * F::bits % 8 == 0 && N >= 1, "packed_numeric_type: the values must fill whole bytes");
  static constexpr int bytes = N * F::bits / 8;
  using format = F;
  using storage_type = metal::packed_vec<uchar, bytes>;
  storage_type storage;

  Packed() = default;
  constexpr explicit Packed(storage_type s) : storage(s) {}
  constexpr storage_type as_storage_type() const { return storage; }

  template <class T> constexpr metal::vec<T, N> unpack() const {
    metal::vec<T, N> values{};
    for (int i = 0; i < N; i++) values[i] = (T)decode_table<F>.value[packed_code<F>(storage.d, i)];
    return values;
  }
};

template <class F, class T, int N> MSL_INLINE Packed<F, N> pack_values(metal::vec<T, N> values) {
  Packed<F, N> packed;
  for (int i = 0; i < Packed<F, N>::bytes; i++) packed.storage.d[i] = 0;
  for (int i = 0; i < N; i++) {
    float value = (float)values[i];
    if (!F::fits(value))
      msl_report("format-range", "pack: %g is outside the range of %s, and compilers disagree about the result",
                 (double)value, F::name);
    packed.storage.d[i * F::bits >> 3] |= (uchar)(F::encode(value) << (i * F::bits & 7));
  }
  return packed;
}
} // namespace msl

namespace metal {
template <class F, int N> using packed_numeric_type MSL_SINCE_26 = msl::Packed<F, N>;

template <class T, class F, int N> MSL_SINCE_27 constexpr vec<T, N> unpack(msl::Packed<F, N> p) {
  return p.template unpack<T>();
}
template <class F, class T, int N> MSL_SINCE_27 MSL_INLINE msl::Packed<F, N> pack(vec<T, N> values) {
  return msl::pack_values<F>(values);
}
template <int N> using packed_int4b MSL_SINCE_26_4 = msl::Packed<msl::int4b, N>;
template <int N> using packed_uint4b MSL_SINCE_26_4 = msl::Packed<msl::uint4b, N>;
template <int N> using packed_int2b MSL_SINCE_27 = msl::Packed<msl::int2b, N>;
template <int N> using packed_uint2b MSL_SINCE_27 = msl::Packed<msl::uint2b, N>;
template <int N> using packed_metal_fp4_e2m1 MSL_SINCE_27 = msl::Packed<msl::fp4_e2m1, N>;
template <int N> using packed_metal_fp8_e4m3 MSL_SINCE_27 = msl::Packed<msl::fp8_e4m3, N>;
template <int N> using packed_metal_fp8_e5m2 MSL_SINCE_27 = msl::Packed<msl::fp8_e5m2, N>;
} // namespace metal
