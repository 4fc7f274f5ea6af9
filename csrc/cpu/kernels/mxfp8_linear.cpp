// mxfp8_linear: which kernel computes which rows and columns.
#include <torch/csrc/stable/ops.h>

#include "cpu/kernels/buffer.h"
#include "cpu/kernels/dtype.h"
#include "cpu/kernels/mxfp8.h"
#include "cpu/kernels/mxfp8_gemv.h"

namespace mtl4::cpu::MTL4_ISA {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

template <typename T>
void to_float_rows(const T* x, int64_t rows, int64_t k, float* out, int64_t stride) {
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t i = 0; i < stride; i += kLanes) store(out + m * stride + i, load_first(x + m * k + i, k - i));
}

template <typename T>
T round_to(float x) {
  T y;
  store_first(&y, splat(x), 1);
  return y;
}

template <int M, typename T>
void gemv(const Mxfp8LinearProblem& p, FloatRows x, const uint8_t* weight, const uint8_t* scale, const T* bias, T* out) {
  torch::stable::parallel_for(0, p.n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      float y[M];
      dot_rows<M>(x, weight + n * p.weight_stride, scale + n * p.weight_scale_stride, p.k, y);
      const float b = bias ? to_float(bias[n * p.bias_stride]) : 0.0f;
      for (int m = 0; m < M; ++m) out[m * p.n + n] = round_to<T>(y[m] + b);
    }
  });
}

template <typename T>
void linear(const Mxfp8LinearProblem& p, const T* x, const uint8_t* weight, const uint8_t* scale, const T* bias, T* out) {
  const int64_t stride = round_up(p.k, kMxBlock);
  const Buffer<float> rows(kGemvRows * stride);
  const FloatRows xf{rows.get(), stride};
  for (int64_t m = 0; m < p.m;) {
    const int64_t left = p.m - m, take = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    to_float_rows(x + m * p.k, take, p.k, rows.get(), stride);
    T* y = out + m * p.n;
    if (take == 8) gemv<8>(p, xf, weight, scale, bias, y);
    if (take == 4) gemv<4>(p, xf, weight, scale, bias, y);
    if (take == 2) gemv<2>(p, xf, weight, scale, bias, y);
    if (take == 1) gemv<1>(p, xf, weight, scale, bias, y);
    m += take;
  }
}

}  // namespace

void mxfp8_linear(const Mxfp8LinearProblem& p, const void* x, const uint8_t* weight, const uint8_t* scale,
                  const void* bias, void* out) {
  by_dtype(p.dtype, [&]<typename T>(T) {
    linear(p, static_cast<const T*>(x), weight, scale, static_cast<const T*>(bias), static_cast<T*>(out));
  });
}

}  // namespace mtl4::cpu::MTL4_ISA
