// Vector words of the CPU kernels: one register of floats on whatever instruction set this file is compiled for.
//
// Everything here lies in the namespace of the instruction set, so that no inline function compiled for a larger one
// can be picked by the linker for a smaller one. For the same reason the kernels use no inline functions of libraries.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define MTL4_INLINE inline __attribute__((always_inline))

namespace mtl4::cpu::MTL4_ISA {

struct bf16 {
  uint16_t bits;
};
struct fp16 {
  uint16_t bits;
};

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float vf __attribute__((vector_size(4 * kLanes)));
typedef int32_t vi __attribute__((vector_size(4 * kLanes)));
typedef uint32_t vu __attribute__((vector_size(4 * kLanes)));
typedef uint16_t vu16 __attribute__((vector_size(2 * kLanes)));

template <typename To, typename From>
MTL4_INLINE To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}

// Not vf{} + x: that is an addition, which turns -0 into 0 and keeps the load from being a broadcast.
MTL4_INLINE vf splat(float x) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(x);
#elif defined(__AVX2__)
  return _mm256_set1_ps(x);
#else
  return vf{x, x, x, x};
#endif
}
MTL4_INLINE vi splat(int32_t x) { return vi{} + x; }
MTL4_INLINE vf select(vi mask, vf yes, vf no) { return mask ? yes : no; }

MTL4_INLINE vi iota() {
  vi v;
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}

MTL4_INLINE vf fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}

// A NaN in b is returned; a NaN in a is lost.
MTL4_INLINE vf max(vf a, vf b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

MTL4_INLINE vf abs(vf x) { return bits_as<vf>(bits_as<vu>(x) & 0x7fffffffu); }

MTL4_INLINE vu widen(vu16 x) { return __builtin_convertvector(x, vu); }
MTL4_INLINE vu16 narrow(vu x) { return __builtin_convertvector(x, vu16); }

// Float to bfloat16 to nearest even; every NaN becomes a quiet NaN.
MTL4_INLINE vu16 to_bf16(vf x) {
  const vu u = bits_as<vu>(x);
  const vu rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return narrow((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
}

MTL4_INLINE vf from_fp16(vu16 x) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(bits_as<__m256i>(x));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(bits_as<__m128i>(x));
#elif defined(__aarch64__)
  return vcvt_f32_f16(bits_as<float16x4_t>(x));
#else
  const vu u = widen(x), magnitude = u & 0x7fffu, shifted = magnitude << 13;
  constexpr uint32_t kRebias = 112u << 23;
  const vu normal = shifted + (magnitude >= 0x7c00u ? vu{} + 2 * kRebias : vu{} + kRebias);
  const vf subnormal = __builtin_convertvector(bits_as<vi>(magnitude), vf) * 0x1p-24f;
  return bits_as<vf>((magnitude < 0x400u ? bits_as<vu>(subnormal) : normal) | (u & 0x8000u) << 16);
#endif
}

MTL4_INLINE vu16 to_fp16(vf x) {
#if defined(__AVX512F__)
  return bits_as<vu16>(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__AVX2__)
  return bits_as<vu16>(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
  return bits_as<vu16>(vcvt_f16_f32(x));
#else
  constexpr uint32_t kRebias = 112u << 23, kInfinity = 0x7c00u, kNan = 0x7e00u;
  const vu u = bits_as<vu>(x), magnitude = u & 0x7fffffffu;
  const vu normal = (magnitude - kRebias + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Beside 0.5 a float's last place is 2^-24, which is the step of fp16's subnormals: the addition rounds.
  const vu subnormal = bits_as<vu>(bits_as<vf>(magnitude) + 0.5f) - 0x3f000000u;
  vu r = magnitude < 0x38800000u ? subnormal : normal;
  r = magnitude >= 0x477ff000u ? vu{} + kInfinity : r;
  r = magnitude > 0x7f800000u ? vu{} + kNan : r;
  return narrow(r | (u >> 16 & 0x8000u));
#endif
}

template <typename V>
MTL4_INLINE V load_as(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

MTL4_INLINE vf load(const float* p) { return load_as<vf>(p); }
MTL4_INLINE vf load(const bf16* p) { return bits_as<vf>(widen(load_as<vu16>(p)) << 16); }
MTL4_INLINE vf load(const fp16* p) { return from_fp16(load_as<vu16>(p)); }
MTL4_INLINE void store(float* p, vf x) { std::memcpy(p, &x, sizeof x); }
MTL4_INLINE void store(vu16* p, vu16 x) { std::memcpy(p, &x, sizeof x); }
MTL4_INLINE vu16 encode(bf16, vf x) { return to_bf16(x); }
MTL4_INLINE vu16 encode(fp16, vf x) { return to_fp16(x); }
template <typename T>
MTL4_INLINE void store(T* p, vf x) {
  const vu16 y = encode(T{}, x);
  std::memcpy(p, &y, sizeof y);
}

// The first n lanes (n may be kLanes or more); the others are 0 and their memory is not touched.
template <typename T>
MTL4_INLINE vf load_first(const T* p, int64_t n) {
  if (n >= kLanes) return load(p);
#if defined(__AVX512BW__)
  const uint32_t lanes = n > 0 ? (1u << n) - 1 : 0;
  if constexpr (sizeof(T) == 4) return _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), p);
  if constexpr (sizeof(T) == 2) {
    const auto x = bits_as<vu16>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(lanes), p));
    return load(reinterpret_cast<const T*>(&x));
  }
#endif
  T padded[kLanes] = {};
  if (n > 0) std::memcpy(padded, p, n * sizeof(T));
  return load(padded);
}
template <typename T>
MTL4_INLINE void store_first(T* p, vf x, int64_t n) {
  if (n >= kLanes) return store(p, x);
  T padded[kLanes];
  store(padded, x);
  if (n > 0) std::memcpy(p, padded, n * sizeof(T));
}

MTL4_INLINE float to_float(float x) { return x; }
template <typename T>
MTL4_INLINE float to_float(T x) {
  return load_first(&x, 1)[0];
}

MTL4_INLINE bool any(vi mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask(bits_as<__m512i>(mask), bits_as<__m512i>(mask)) != 0;
#elif defined(__AVX2__)
  return !_mm256_testz_si256(bits_as<__m256i>(mask), bits_as<__m256i>(mask));
#else
  int32_t r = 0;
  for (int i = 0; i < kLanes; ++i) r |= mask[i];
  return r != 0;
#endif
}

// Lane i of the result is lane Index[i] of a and b, one after the other.
template <int... Index>
MTL4_INLINE vf shuffle(vf a, vf b) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, Index...);
#else
  return __builtin_shuffle(a, b, vi{Index...});
#endif
}

template <int... Lane>
struct Lanes {};
template <int N, int... Lane>
struct FirstLanes : FirstLanes<N - 1, N - 1, Lane...> {};
template <int... Lane>
struct FirstLanes<0, Lane...> {
  using type = Lanes<Lane...>;
};

template <int H, int... Lane>
MTL4_INLINE vf swap_halves(vf x, Lanes<Lane...>) {
  return shuffle<(Lane ^ H)...>(x, x);
}

// All lanes folded by f into every lane.
template <int H = kLanes / 2, typename F>
MTL4_INLINE vf fold(vf x, const F& f) {
  x = f(x, swap_halves<H>(x, FirstLanes<kLanes>::type{}));
  if constexpr (H > 1) x = fold<H / 2>(x, f);
  return x;
}
MTL4_INLINE float reduce_add(vf x) {
  return fold(x, [](vf a, vf b) { return a + b; })[0];
}
MTL4_INLINE float reduce_max(vf x) {
  return fold(x, [](vf a, vf b) { return max(a, b); })[0];
}

// Exchanges the two off-diagonal quarters of every square of side 2H.
template <int H, int... Lane>
MTL4_INLINE void transpose_step(vf (&rows)[kLanes], Lanes<Lane...>) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i & H) continue;
    const vf a = rows[i], b = rows[i + H];
    rows[i] = shuffle<(Lane & H ? kLanes + Lane - H : Lane)...>(a, b);
    rows[i + H] = shuffle<(Lane & H ? kLanes + Lane : Lane + H)...>(a, b);
  }
}

MTL4_INLINE void transpose(vf (&rows)[kLanes]) {
  using All = FirstLanes<kLanes>::type;
  if constexpr (kLanes >= 16) transpose_step<8>(rows, All{});
  if constexpr (kLanes >= 8) transpose_step<4>(rows, All{});
  transpose_step<2>(rows, All{});
  transpose_step<1>(rows, All{});
}

template <int H = kLanes / 2, int... Lane>
MTL4_INLINE void reduce_add_step(vf* rows, Lanes<Lane...> lanes) {
#pragma GCC unroll 8
  for (int i = 0; i < H; ++i) {
    const vf a = rows[i], b = rows[i + H];
    rows[i] = shuffle<(Lane & H ? kLanes + Lane - H : Lane)...>(a, b) +
              shuffle<(Lane & H ? kLanes + Lane : Lane + H)...>(a, b);
  }
  if constexpr (H > 1) reduce_add_step<H / 2>(rows, lanes);
}

// Lane i of the result is the sum of all lanes of rows[i], of which there are kLanes.
MTL4_INLINE vf reduce_add_each(const vf* rows) {
  vf x[kLanes];
  std::memcpy(x, rows, sizeof x);
  reduce_add_step(x, FirstLanes<kLanes>::type{});
  return x[0];
}

}  // namespace mtl4::cpu::MTL4_ISA
