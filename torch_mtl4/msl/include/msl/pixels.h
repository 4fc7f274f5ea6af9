// Pixels of textures: components in memory as four values of the texture's component type, and back.
#pragma once
#include "pack.h"
namespace msl {
// Components that a format lacks are read as 0, alpha as 1.
template <class T> constexpr metal::vec<T, 4> absent_components() { return {T(0), T(0), T(0), T(1)}; }

template <class T> constexpr bool format_matches(int format) {
  switch (format) {
  case MSL_PIXEL_UINT8:
  case MSL_PIXEL_UINT16:
  case MSL_PIXEL_UINT32: return metal::is_integral_v<T> && metal::is_unsigned_v<T>;
  case MSL_PIXEL_SINT8:
  case MSL_PIXEL_SINT16:
  case MSL_PIXEL_SINT32: return metal::is_integral_v<T> && !metal::is_unsigned_v<T>;
  default: return metal::is_floating_point_v<T>;
  }
}

template <class T> MSL_INLINE T load_component(const void *p, int format, int i) {
  switch (format) {
  case MSL_PIXEL_FLOAT32: return (T)((const float *)p)[i];
  case MSL_PIXEL_FLOAT16: return (T)((const half *)p)[i];
  case MSL_PIXEL_UNORM8: return (T)(((const uchar *)p)[i] / 255.0f);
  case MSL_PIXEL_UNORM16: return (T)(((const ushort *)p)[i] / 65535.0f);
  case MSL_PIXEL_SNORM8: return (T)metal::max(((const int8_t *)p)[i] / 127.0f, -1.0f);
  case MSL_PIXEL_SNORM16: return (T)metal::max(((const short *)p)[i] / 32767.0f, -1.0f);
  case MSL_PIXEL_UINT8: return (T)((const uchar *)p)[i];
  case MSL_PIXEL_UINT16: return (T)((const ushort *)p)[i];
  case MSL_PIXEL_UINT32: return (T)((const uint *)p)[i];
  case MSL_PIXEL_SINT8: return (T)((const int8_t *)p)[i];
  case MSL_PIXEL_SINT16: return (T)((const short *)p)[i];
  case MSL_PIXEL_SINT32: return (T)((const int *)p)[i];
  }
  return T(0);
}

// Values are clamped to what the format holds.
template <class Stored, class T> constexpr Stored clamp_to(T x) {
  constexpr Stored low = metal::numeric_limits<Stored>::min(), high = metal::numeric_limits<Stored>::max();
  return (long)x<(long)low ? low : (long)x>(long) high ? high : (Stored)x;
}
template <class T> MSL_INLINE void store_component(void *p, int format, int i, T x) {
  if constexpr (metal::is_floating_point_v<T>) {
    float f = (float)x;
    switch (format) {
    case MSL_PIXEL_FLOAT32: ((float *)p)[i] = f; break;
    case MSL_PIXEL_FLOAT16: ((half *)p)[i] = (half)f; break;
    case MSL_PIXEL_UNORM8: ((uchar *)p)[i] = (uchar)normalized_code(f, 0, 255); break;
    case MSL_PIXEL_UNORM16: ((ushort *)p)[i] = (ushort)normalized_code(f, 0, 65535); break;
    case MSL_PIXEL_SNORM8: ((int8_t *)p)[i] = (int8_t)normalized_code(f, -1, 127); break;
    case MSL_PIXEL_SNORM16: ((short *)p)[i] = (short)normalized_code(f, -1, 32767); break;
    }
  } else {
    switch (format) {
    case MSL_PIXEL_UINT8: ((uchar *)p)[i] = clamp_to<uchar>(x); break;
    case MSL_PIXEL_UINT16: ((ushort *)p)[i] = clamp_to<ushort>(x); break;
    case MSL_PIXEL_UINT32: ((uint *)p)[i] = clamp_to<uint>(x); break;
    case MSL_PIXEL_SINT8: ((int8_t *)p)[i] = clamp_to<int8_t>(x); break;
    case MSL_PIXEL_SINT16: ((short *)p)[i] = clamp_to<short>(x); break;
    case MSL_PIXEL_SINT32: ((int *)p)[i] = clamp_to<int>(x); break;
    }
  }
}
} // namespace msl
