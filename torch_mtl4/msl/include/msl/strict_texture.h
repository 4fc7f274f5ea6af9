// Textures, samplers and os_log, for the strict pass.
#pragma once
namespace metal {
enum class access { sample, read, write, read_write };
enum class component { x, y, z, w };
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
struct sampler {
  sampler() = default;
  template <class... Options> constexpr explicit sampler(Options...) {}
};
#define MSL_OPTION(name) \
  struct name { \
    template <class... A> constexpr explicit name(A...) {} \
  };
MSL_OPTION(level)
MSL_OPTION(bias)
MSL_OPTION(min_lod_clamp)
MSL_OPTION(gradient2d)
MSL_OPTION(max_anisotropy)
MSL_OPTION(lod_clamp)
#undef MSL_OPTION

#define MSL_TEXTURE(name, ...) \
  template <class T, access ACCESS = access::sample> struct name { \
    vec<T, 4> read(uint2 __VA_ARGS__, uint = 0) const requires(ACCESS != access::write); \
    vec<T, 4> read(ushort2 __VA_ARGS__, ushort = 0) const requires(ACCESS != access::write); \
    void write(vec<T, 4>, uint2 __VA_ARGS__, uint = 0) const \
        requires(ACCESS == access::write || ACCESS == access::read_write); \
    void write(vec<T, 4>, ushort2 __VA_ARGS__, ushort = 0) const \
        requires(ACCESS == access::write || ACCESS == access::read_write); \
    template <class... O> vec<T, 4> sample(sampler, float2 __VA_ARGS__, O...) const requires(ACCESS == access::sample) \
    ; \
    template <class... O> vec<T, 4> gather(sampler, float2 __VA_ARGS__, O...) const requires(ACCESS == access::sample) \
    ; \
    uint get_width(uint = 0) const; \
    uint get_height(uint = 0) const; \
    uint get_array_size() const; \
    uint get_num_mip_levels() const; \
    void fence() const; \
  }; \
  template <class T, access A> bool is_null_texture(name<T, A>);
MSL_TEXTURE(texture2d)
MSL_TEXTURE(texture2d_array, , uint)
#undef MSL_TEXTURE

struct MSL_SINCE_15 os_log {
  constexpr os_log(const char *, const char *) {}
  template <class... A> void log(const char *, A...) const;
  template <class... A> void log_debug(const char *, A...) const;
  template <class... A> void log_info(const char *, A...) const;
  template <class... A> void log_error(const char *, A...) const;
  template <class... A> void log_fault(const char *, A...) const;
};
MSL_SINCE_15 inline constexpr os_log os_log_default("", "");
} // namespace metal
