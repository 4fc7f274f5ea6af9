// metal_logging, and the words that only guide the optimiser.
#pragma once
#include "scalar.h"
namespace metal {
template <class T> using uniform = T;
template <class T> MSL_INLINE constexpr T make_uniform(T x) { return x; }
struct os_log {
  constexpr os_log(const char *, const char *) {}
  template <class... A> void log(const char *, A...) const {}
  template <class... A> void log_debug(const char *, A...) const {}
  template <class... A> void log_info(const char *, A...) const {}
  template <class... A> void log_error(const char *, A...) const {}
};
inline constexpr os_log os_log_default("", "");
} // namespace metal
