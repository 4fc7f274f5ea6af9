// metal_texture: texture2d and texture2d_array with one level of detail. Linear weights are exact floats; the
// hardware's have fewer bits. Reads outside give zeros and writes outside do nothing, and both are reported.
#pragma once
#include "math.h"
#include "pixels.h"
#include "sampler.h"
namespace metal {
enum class access { sample, read, write, read_write };
enum class component { x, y, z, w };
struct level {
  float lod;
  constexpr explicit level(float l) : lod(l) {}
};
struct bias {
  constexpr explicit bias(float) {}
};
struct min_lod_clamp {
  constexpr explicit min_lod_clamp(float) {}
};
struct gradient2d {
  gradient2d(float2, float2) {}
};
} // namespace metal

namespace msl {
MSL_UNCHECKED inline const MslTextureBinding &bound_texture(const MslTextureBinding *t) {
  if (!t) {
    msl_fail("binding", "texture that the host did not bind");
  }
  return *t;
}

// Where coordinate i of n lies under an address mode; -1 is outside, where there is the border.
constexpr long wrap(int mode, long i, long n) {
  if (i >= 0 && i < n) return i;
  switch ((metal::address)mode) {
  case metal::address::clamp_to_edge: return i < 0 ? 0 : n - 1;
  case metal::address::repeat: return (i % n + n) % n;
  case metal::address::mirrored_repeat: {
    long k = (i % (2 * n) + 2 * n) % (2 * n);
    return k < n ? k : 2 * n - 1 - k;
  }
  default: return -1;
  }
}

template <class T> struct Image { // one layer of a bound texture
  using Pixel = metal::vec<T, 4>;
  char *data;
  int format, channels;
  long width, height, row_bytes;

  MSL_UNCHECKED static int component_size(int format) {
    return format == MSL_PIXEL_FLOAT32 || format == MSL_PIXEL_UINT32 || format == MSL_PIXEL_SINT32 ? 4
           : format == MSL_PIXEL_UNORM8 || format == MSL_PIXEL_SNORM8 || format == MSL_PIXEL_UINT8 ||
                   format == MSL_PIXEL_SINT8
               ? 1
               : 2;
  }
  MSL_INLINE void *at(long x, long y) const { return data + y * row_bytes + x * channels * component_size(format); }
  MSL_INLINE bool inside(long x, long y, const char *verb) const {
    if (x >= 0 && x < width && y >= 0 && y < height) return true;
    msl_report("texture-bounds", "%s pixel (%ld, %ld) of a texture of %ld x %ld", verb, x, y, width, height);
    return false;
  }
  MSL_INLINE Pixel load(long x, long y) const {
    Pixel pixel = absent_components<T>();
    void *p = at(x, y);
    for (int i = 0; i < channels; i++) pixel[i] = load_component<T>(p, format, i);
    return pixel;
  }
  MSL_INLINE void store(long x, long y, Pixel pixel) const {
    void *p = at(x, y);
    for (int i = 0; i < channels; i++) store_component<T>(p, format, i, pixel[i]);
  }

  MSL_INLINE Pixel texel(const MslSampler &s, long x, long y) const {
    x = wrap(s.address_s, x, width);
    y = wrap(s.address_t, y, height);
    if (x >= 0 && y >= 0) return load(x, y);
    bool coloured =
        s.address_s == (int)metal::address::clamp_to_border || s.address_t == (int)metal::address::clamp_to_border;
    int border = coloured ? s.border : 0;
    T colour = T(border == 2), alpha = T(border != 0);
    return {colour, colour, colour, alpha};
  }
  MSL_INLINE metal::float2 position(const MslSampler &s, metal::float2 c) const {
    if (!s.normalized && (s.address_s >= (int)metal::address::repeat || s.address_t >= (int)metal::address::repeat))
      msl_report("sampler", "repeating address modes need normalized coordinates");
    return s.normalized ? metal::float2(c[0] * (float)width, c[1] * (float)height) : c;
  }
  MSL_INLINE Pixel sample(const MslSampler &s, metal::float2 c, metal::int2 offset) const {
    metal::float2 p = position(s, c);
    if (!s.mag_linear) {
      long x = (long)__builtin_floorf(p[0]) + offset[0], y = (long)__builtin_floorf(p[1]) + offset[1];
      return texel(s, x, y);
    }
    if constexpr (metal::is_floating_point_v<T>) {
      float u = p[0] - 0.5f, v = p[1] - 0.5f, fu = __builtin_floorf(u), fv = __builtin_floorf(v);
      long x = (long)fu + offset[0], y = (long)fv + offset[1];
      float a = u - fu, b = v - fv;
      metal::float4 top = blend(texel(s, x, y), texel(s, x + 1, y), a);
      metal::float4 bottom = blend(texel(s, x, y + 1), texel(s, x + 1, y + 1), a);
      return Pixel(top * (1.0f - b) + bottom * b);
    } else {
      msl_report("sampler", "textures of integers cannot be filtered linearly");
      return Pixel(T(0));
    }
  }
  MSL_INLINE static metal::float4 blend(Pixel p, Pixel q, float a) {
    return metal::float4(p) * (1.0f - a) + metal::float4(q) * a;
  }
  // The four texels that linear filtering would blend: counter-clockwise from the lower left.
  MSL_INLINE Pixel gather(const MslSampler &s, metal::float2 c, metal::int2 offset, int i) const {
    metal::float2 p = position(s, c);
    long x = (long)__builtin_floorf(p[0] - 0.5f) + offset[0], y = (long)__builtin_floorf(p[1] - 0.5f) + offset[1];
    return {texel(s, x, y + 1)[i], texel(s, x + 1, y + 1)[i], texel(s, x + 1, y)[i], texel(s, x, y)[i]};
  }
};

template <class T, metal::access ACCESS> struct TextureBase {
  static_assert(metal::is_scalar_v<T> && !__is_same(T, bfloat) && sizeof(T) <= 4 && !__is_same(T, bool),
                "texture: the component type is half, float, short, ushort, int or uint");
  static constexpr bool reads = ACCESS != metal::access::write;
  static constexpr bool writes = ACCESS == metal::access::write || ACCESS == metal::access::read_write;
  static constexpr bool samples = ACCESS == metal::access::sample;
  using Pixel = metal::vec<T, 4>;
  const MslTextureBinding *texture = nullptr;

  MSL_UNCHECKED Image<T> image(unsigned layer = 0) const {
    const MslTextureBinding &t = bound_texture(texture);
    if (!format_matches<T>(t.format)) {
      msl_fail("texture-format",
               "the component type of the kernel's texture does not fit the pixel format that is bound");
    }
    if (layer >= t.depth) {
      msl_report("texture-bounds", "layer %u of a texture with %u", layer, t.depth);
      layer = t.depth - 1; // as the hardware does
    }
    return {(char *)t.data + layer * t.slice_bytes, t.format, t.channels, t.width, t.height, t.row_bytes};
  }
  MSL_UNCHECKED unsigned get_width(unsigned = 0) const { return bound_texture(texture).width; }
  MSL_UNCHECKED unsigned get_height(unsigned = 0) const { return bound_texture(texture).height; }
  static constexpr unsigned get_num_mip_levels() { return 1; }

protected:
  static void check_level(unsigned lod) {
    if (lod) msl_report("texture-bounds", "level %u of a texture with one level", lod);
  }
  static constexpr metal::int2 offset_of() { return metal::int2(0); }
  template <class O, class... Rest> static constexpr metal::int2 offset_of(O option, Rest... rest) {
    if constexpr (__is_same(O, metal::int2)) return option;
    else return offset_of(rest...);
  }
  template <class... O> static constexpr int component_of(O... options) {
    int i = 0;
    (
        [&](auto option) {
          if constexpr (__is_same(decltype(option), metal::component)) i = (int)option;
        }(options),
        ...);
    return i;
  }
  template <class C> static MSL_INLINE Pixel read_at(const Image<T> &image, C c, unsigned lod) {
    static_assert(reads, "texture: read needs access::read, access::read_write or access::sample");
    check_level(lod);
    return image.inside(c[0], c[1], "read of") ? image.load(c[0], c[1]) : Pixel(T(0));
  }
  template <class C> static MSL_INLINE void write_at(const Image<T> &image, Pixel pixel, C c, unsigned lod) {
    static_assert(writes, "texture: write needs access::write or access::read_write");
    check_level(lod);
    if (image.inside(c[0], c[1], "write of")) image.store(c[0], c[1], pixel);
  }
  template <class... O>
  static MSL_INLINE Pixel sample_at(const Image<T> &image, const metal::sampler &s, metal::float2 c, O... options) {
    static_assert(samples, "texture: sample needs access::sample");
    return image.sample(s.state_, c, offset_of(options...));
  }
  template <class... O>
  static MSL_INLINE Pixel gather_at(const Image<T> &image, const metal::sampler &s, metal::float2 c, O... options) {
    static_assert(samples, "texture: gather needs access::sample");
    return image.gather(s.state_, c, offset_of(options...), component_of(options...));
  }
};
} // namespace msl

namespace metal {
template <class T, access ACCESS = access::sample> struct texture2d : msl::TextureBase<T, ACCESS> {
  using Base = msl::TextureBase<T, ACCESS>;
  MSL_INLINE vec<T, 4> read(uint2 c, uint lod = 0) const { return Base::read_at(this->image(), c, lod); }
  MSL_INLINE vec<T, 4> read(ushort2 c, ushort lod = 0) const { return Base::read_at(this->image(), c, lod); }
  MSL_INLINE void write(vec<T, 4> pixel, uint2 c, uint lod = 0) const { Base::write_at(this->image(), pixel, c, lod); }
  MSL_INLINE void write(vec<T, 4> pixel, ushort2 c, ushort lod = 0) const {
    Base::write_at(this->image(), pixel, c, lod);
  }
  template <class... O> MSL_INLINE vec<T, 4> sample(sampler s, float2 c, O... options) const {
    return Base::sample_at(this->image(), s, c, options...);
  }
  template <class... O> MSL_INLINE vec<T, 4> gather(sampler s, float2 c, O... options) const {
    return Base::gather_at(this->image(), s, c, options...);
  }
  MSL_INLINE void fence() const {} // a thread sees its own writes anyway
};

template <class T, access ACCESS = access::sample> struct texture2d_array : msl::TextureBase<T, ACCESS> {
  using Base = msl::TextureBase<T, ACCESS>;
  MSL_INLINE vec<T, 4> read(uint2 c, uint layer, uint lod = 0) const {
    return Base::read_at(this->image(layer), c, lod);
  }
  MSL_INLINE vec<T, 4> read(ushort2 c, ushort layer, ushort lod = 0) const {
    return Base::read_at(this->image(layer), c, lod);
  }
  MSL_INLINE void write(vec<T, 4> pixel, uint2 c, uint layer, uint lod = 0) const {
    Base::write_at(this->image(layer), pixel, c, lod);
  }
  MSL_INLINE void write(vec<T, 4> pixel, ushort2 c, ushort layer, ushort lod = 0) const {
    Base::write_at(this->image(layer), pixel, c, lod);
  }
  template <class... O> MSL_INLINE vec<T, 4> sample(sampler s, float2 c, uint layer, O... options) const {
    return Base::sample_at(this->image(layer), s, c, options...);
  }
  template <class... O> MSL_INLINE vec<T, 4> gather(sampler s, float2 c, uint layer, O... options) const {
    return Base::gather_at(this->image(layer), s, c, options...);
  }
  MSL_UNCHECKED unsigned get_array_size() const { return msl::bound_texture(this->texture).depth; }
  MSL_INLINE void fence() const {}
};
template <class T, access A> MSL_UNCHECKED bool is_null_texture(texture2d<T, A> t) { return !t.texture; }
template <class T, access A> MSL_UNCHECKED bool is_null_texture(texture2d_array<T, A> t) { return !t.texture; }

#define MSL_NOT_HERE(name) \
  template <class T, access ACCESS = access::sample> struct __attribute__(( \
      unavailable("textures other than texture2d and texture2d_array are not part of this runner"))) name;
MSL_NOT_HERE(texture1d)
MSL_NOT_HERE(texture3d)
MSL_NOT_HERE(texturecube)
MSL_NOT_HERE(depth2d)
MSL_NOT_HERE(texture_buffer)
#undef MSL_NOT_HERE
} // namespace metal
