#include "cpu/kernels/mxfp8.h"

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Float8_e4m3fn.h>
#include <torch/headeronly/util/Half.h>

#include <bit>
#include <cmath>
#include <vector>

namespace mtl4::cpu::MTL4_ISA {
namespace {

using torch::headeronly::ScalarType;

float e8m0(uint8_t b) { return b == 255 ? NAN : std::ldexp(1.0f, int(b) - 127); }
float e4m3(uint8_t b) { return c10::detail::fp8e4m3fn_to_fp32_value(b); }

uint8_t scale_byte(float amax, ScalingMode mode) {
  if (std::isnan(amax) || std::isinf(amax)) return 255;
  if (amax == 0) return 0;
  int exponent;
  const float mantissa = std::frexp(amax, &exponent);  // amax = mantissa * 2^exponent, mantissa in [0.5, 1)
  int e = exponent - 1 - 8;
  if (mode == ScalingMode::rceil && mantissa > 448.0f / 512) e += 1;
  if (mode == ScalingMode::ceil && mantissa > 0.5f) e += 1;
  if (mode == ScalingMode::even && mantissa >= 0.5f * (1 + 15.0f / 16)) e += 1;
  return static_cast<uint8_t>(std::min(std::max(e + 127, 0), 254));
}

template <typename T>
void quantize(const Mxfp8CodecProblem& p, const T* x, uint8_t* data, uint8_t* scale) {
  torch::stable::parallel_for(0, p.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t b = 0; b < p.blocks(); ++b) {
        float amax = 0;
        const int64_t stop = std::min(p.k, (b + 1) * kMxBlock);
        for (int64_t i = b * kMxBlock; i < stop; ++i) {
          const float v = std::abs(float(x[r * p.k + i]));
          amax = std::isnan(v) || std::isnan(amax) ? NAN : std::max(amax, v);
        }
        const uint8_t s = scale_byte(amax, p.scaling);
        scale[r * p.blocks() + b] = s;
        for (int64_t i = b * kMxBlock; i < stop; ++i) {
          float v = std::ldexp(float(x[r * p.k + i]), 127 - int(s));
          v = std::min(std::max(v, -448.0f), 448.0f);
          data[r * p.k + i] = s == 255 ? 0x7f : c10::detail::fp8e4m3fn_from_fp32_value(v);
        }
      }
  });
}

template <typename T>
void dequantize(const Mxfp8CodecProblem& p, const uint8_t* data, const uint8_t* scale, T* out) {
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t i = 0; i < p.k; ++i)
      out[r * p.k + i] = T(e4m3(data[r * p.k + i]) * e8m0(scale[r * p.blocks() + i / kMxBlock]));
}

template <typename T>
void linear(const Mxfp8LinearProblem& p, const T* x, const uint8_t* weight, const uint8_t* scale, const T* bias,
            T* out) {
  float table[256];
  for (int i = 0; i < 256; ++i) table[i] = e4m3(static_cast<uint8_t>(i));
  torch::stable::parallel_for(0, p.n, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> w(p.k);
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t k = 0; k < p.k; ++k)
        w[k] = table[weight[n * p.weight_stride + k]] * e8m0(scale[n * p.weight_scale_stride + k / kMxBlock]);
      for (int64_t m = 0; m < p.m; ++m) {
        float s = 0;
        for (int64_t k = 0; k < p.k; ++k) s += w[k] * float(x[m * p.k + k]);
        out[m * p.n + n] = T(bias ? s + float(bias[n * p.bias_stride]) : s);
      }
    }
  });
}

template <typename F>
void by_dtype(ScalarType dtype, F&& f) {
  if (dtype == ScalarType::Float) return f(float{});
  if (dtype == ScalarType::Half) return f(c10::Half{});
  f(c10::BFloat16{});
}

}  // namespace

void mxfp8_quantize(const Mxfp8CodecProblem& p, const void* x, uint8_t* data, uint8_t* scale) {
  by_dtype(p.dtype, [&]<typename T>(T) { quantize(p, static_cast<const T*>(x), data, scale); });
}

void mxfp8_dequantize(const Mxfp8CodecProblem& p, const uint8_t* data, const uint8_t* scale, void* out) {
  by_dtype(p.dtype, [&]<typename T>(T) { dequantize(p, data, scale, static_cast<T*>(out)); });
}

void mxfp8_linear(const Mxfp8LinearProblem& p, const void* x, const uint8_t* weight, const uint8_t* scale,
                  const void* bias, void* out) {
  by_dtype(p.dtype, [&]<typename T>(T) {
    linear(p, static_cast<const T*>(x), weight, scale, static_cast<const T*>(bias), static_cast<T*>(out));
  });
}

}  // namespace mtl4::cpu::MTL4_ISA
