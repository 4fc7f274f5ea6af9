// metal_logging: os_log, whose messages the host reads after the dispatch.
#pragma once
#include "tier.h"
#include "vector.h"
namespace msl {
template <class T> MslLogValue log_value(T x) {
  MslLogValue v{};
  if constexpr (metal::is_vec_<T>::value) {
    v = log_value(x[0]);
    for (unsigned i = 0; i < sizeof(x.d) / sizeof(x.d[0]); i++) {
      MslLogValue lane = log_value(x[i]);
      v.real[i] = lane.real[0];
      v.whole[i] = lane.whole[0];
      v.lanes = i + 1;
    }
  } else if constexpr (__is_pointer(T) || __is_array(T)) {
    v.lanes = 1;
    v.whole[0] = (long)x;
    if constexpr (__is_same(__remove_cv(__remove_pointer(__decay(T))), char)) v.text = x;
  } else {
    v.lanes = 1;
    v.is_real = metal::is_floating_point_v<T>;
    v.bytes = sizeof(T);
    v.real[0] = (double)(float)x;
    if constexpr (!metal::is_floating_point_v<T>) v.whole[0] = (long)x;
  }
  return v;
}
} // namespace msl

namespace metal {
enum class os_log_type { log_default, debug, info, error, fault };

struct OsLog {
  const char *subsystem, *category;
  constexpr OsLog(const char *subsystem, const char *category) : subsystem(subsystem), category(category) {}
  template <class... A> MSL_INLINE void log_with_type(os_log_type type, const char *format, A... values) const {
    const MslLogValue list[] = {msl::log_value(values)..., MslLogValue{}};
    msl_log((int)type, subsystem, category, format, list, sizeof...(A));
  }
  template <class... A> MSL_INLINE void log(const char *format, A... values) const {
    log_with_type(os_log_type::log_default, format, values...);
  }
  template <class... A> MSL_INLINE void log_debug(const char *format, A... values) const {
    log_with_type(os_log_type::debug, format, values...);
  }
  template <class... A> MSL_INLINE void log_info(const char *format, A... values) const {
    log_with_type(os_log_type::info, format, values...);
  }
  template <class... A> MSL_INLINE void log_error(const char *format, A... values) const {
    log_with_type(os_log_type::error, format, values...);
  }
  template <class... A> MSL_INLINE void log_fault(const char *format, A... values) const {
    log_with_type(os_log_type::fault, format, values...);
  }
};
using os_log MSL_SINCE_15 = OsLog;
MSL_SINCE_15 inline constexpr OsLog os_log_default("", "");
} // namespace metal
