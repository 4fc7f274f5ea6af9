// metal_texture: how a texture is sampled. A sampler is made in the kernel, constexpr, or bound by the host.
#pragma once
#include "vector.h"
namespace metal {
enum class coord { normalized, pixel };
enum class address { clamp_to_edge, clamp_to_zero, clamp_to_border, repeat, mirrored_repeat };
enum class s_address { clamp_to_edge, clamp_to_zero, clamp_to_border, repeat, mirrored_repeat };
enum class t_address { clamp_to_edge, clamp_to_zero, clamp_to_border, repeat, mirrored_repeat };
enum class r_address { clamp_to_edge, clamp_to_zero, clamp_to_border, repeat, mirrored_repeat };
enum class filter { nearest, linear };
enum class min_filter { nearest, linear };
enum class mag_filter { nearest, linear };
enum class mip_filter { none, nearest, linear };
enum class border_color { transparent_black, opaque_black, opaque_white };
enum class compare_func { never, less, less_equal, greater, greater_equal, equal, not_equal, always };
struct max_anisotropy {
  constexpr explicit max_anisotropy(int) {}
};
struct lod_clamp {
  constexpr lod_clamp(float, float) {}
};

struct sampler {
  MslSampler state_{1, 0, 0, 0, 0, 0};
  sampler() = default;
  template <class... Options> requires(sizeof...(Options) > 0)
  constexpr explicit(sizeof...(Options) == 1) sampler(Options... options) {
    (set(options), ...);
  }

private:
  constexpr void set(coord c) { state_.normalized = c == coord::normalized; }
  constexpr void set(address a) { state_.address_s = state_.address_t = (int)a; }
  constexpr void set(s_address a) { state_.address_s = (int)a; }
  constexpr void set(t_address a) { state_.address_t = (int)a; }
  constexpr void set(r_address) {}
  constexpr void set(filter f) { state_.min_linear = state_.mag_linear = f == filter::linear; }
  constexpr void set(min_filter f) { state_.min_linear = f == min_filter::linear; }
  constexpr void set(mag_filter f) { state_.mag_linear = f == mag_filter::linear; }
  constexpr void set(border_color b) { state_.border = (int)b; }
  constexpr void set(mip_filter) {} // textures have one level here
  constexpr void set(max_anisotropy) {}
  constexpr void set(lod_clamp) {}
};
} // namespace metal
