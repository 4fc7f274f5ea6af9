// mxfp8_quantize and mxfp8_dequantize: bit for bit the OCP conversion, by integer arithmetic on the float's own bits.
#include <torch/csrc/stable/ops.h>

#include "cpu/kernels/dtype.h"
#include "cpu/kernels/mxfp8.h"
#include "cpu/kernels/mxfp8_formats.h"

namespace mtl4::cpu::MTL4_ISA {
namespace {

constexpr int64_t kGrain = 512;  // blocks: below this a second thread costs more than it saves

// amax are the bits of a magnitude; the modes differ in where they round its exponent up.
uint8_t scale_byte(uint32_t amax, ScalingMode mode) {
  constexpr uint32_t kInfinity = 0x7f800000u, kMantissa = 0x7fffffu, kMantissaOf448 = 0x600000u;
  if (amax >= kInfinity) return kE8m0Nan;
  const uint32_t mantissa = amax & kMantissa;
  int e = static_cast<int>(amax >> 23);
  if (mode == ScalingMode::rceil) e += mantissa > kMantissaOf448;
  if (mode == ScalingMode::ceil) e += mantissa > 0;
  if (mode == ScalingMode::even) e = static_cast<int>((amax + 0x80000u) >> 23);  // half of e4m3's last mantissa bit
  constexpr int kEmax = 8;                                                       // of e4m3
  return static_cast<uint8_t>(e > kEmax ? e - kEmax : 0);
}

MTL4_INLINE uint32_t largest_magnitude(const vf (&x)[kBlockVectors]) {
  vi top{};
#pragma GCC unroll 8
  for (int i = 0; i < kBlockVectors; ++i) {
    const vi a = bits_as<vi>(x[i]) & 0x7fffffff;  // ordered as the floats are, NaN above infinity
    top = a > top ? a : top;
  }
#if defined(__AVX512F__)
  return static_cast<uint32_t>(_mm512_reduce_max_epi32(bits_as<__m512i>(top)));
#else
  int32_t r = 0;
  for (int i = 0; i < kLanes; ++i) r = top[i] > r ? top[i] : r;
  return static_cast<uint32_t>(r);
#endif
}

template <typename T>
MTL4_INLINE uint8_t quantize_block(const T* x, uint8_t* data, ScalingMode mode) {
  vf v[kBlockVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kBlockVectors; ++i) v[i] = load(x + i * kLanes);
  const uint8_t scale = scale_byte(largest_magnitude(v), mode);
  if (scale == kE8m0Nan) {
    std::memset(data, kE4m3Nan, kMxBlock);
    return scale;
  }
  const vf inverse = splat(bits_as<float>((254u - scale) << 23));  // 2^(127 - scale); scale is at most 247 here
#pragma GCC unroll 8
  for (int i = 0; i < kBlockVectors; ++i) store_bytes(data + i * kLanes, encode_e4m3(v[i] * inverse));
  return scale;
}

template <typename T>
void quantize(const Mxfp8CodecProblem& p, const T* x, uint8_t* data, uint8_t* scale) {
  const int64_t blocks = p.blocks();
  torch::stable::parallel_for(0, p.rows * blocks, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i / blocks * p.k + i % blocks * kMxBlock, left = p.k - i % blocks * kMxBlock;
      if (left >= kMxBlock) {
        scale[i] = quantize_block(x + at, data + at, p.scaling);
        continue;
      }
      T padded[kMxBlock] = {};
      uint8_t codes[kMxBlock];
      std::memcpy(padded, x + at, left * sizeof(T));
      scale[i] = quantize_block(padded, codes, p.scaling);
      std::memcpy(data + at, codes, left);
    }
  });
}

template <typename T>
MTL4_INLINE void dequantize_block(const uint8_t* data, uint8_t scale, T* out) {
  const vf factor = splat(e8m0_to_float(scale));
  vf v[kBlockVectors];
  decode_e4m3(data, v);
#pragma GCC unroll 8
  for (int i = 0; i < kBlockVectors; ++i) {
    const vf value = v[i] * kE4m3Unit;  // exact, as is the product with the scale wherever a float can hold it
    store(out + i * kLanes, select(abs(value) > 448.0f, splat(__builtin_nanf("")), value * factor));
  }
}

template <typename T>
void dequantize(const Mxfp8CodecProblem& p, const uint8_t* data, const uint8_t* scale, T* out) {
  const int64_t blocks = p.blocks();
  torch::stable::parallel_for(0, p.rows * blocks, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i / blocks * p.k + i % blocks * kMxBlock, left = p.k - i % blocks * kMxBlock;
      if (left >= kMxBlock) {
        dequantize_block(data + at, scale[i], out + at);
        continue;
      }
      uint8_t codes[kMxBlock] = {};
      T values[kMxBlock];
      std::memcpy(codes, data + at, left);
      dequantize_block(codes, scale[i], values);
      std::memcpy(out + at, values, left * sizeof(T));
    }
  });
}

}  // namespace

void mxfp8_quantize(const Mxfp8CodecProblem& p, const void* x, uint8_t* data, uint8_t* scale) {
  by_dtype(p.dtype, [&]<typename T>(T) { quantize(p, static_cast<const T*>(x), data, scale); });
}

void mxfp8_dequantize(const Mxfp8CodecProblem& p, const uint8_t* data, const uint8_t* scale, void* out) {
  by_dtype(p.dtype, [&]<typename T>(T) { dequantize(p, data, scale, static_cast<T*>(out)); });
}

}  // namespace mtl4::cpu::MTL4_ISA
