// mxfp8_linear: which kernel computes it.
#include "cpu/kernels/dtype.h"
#include "cpu/kernels/mxfp8.h"
#include "cpu/kernels/mxfp8_gemm_amx.h"
#include "cpu/kernels/mxfp8_gemm_dot.h"
#include "cpu/kernels/mxfp8_gemm_float.h"
#include "cpu/kernels/mxfp8_gemv_dot.h"

namespace mtl4::cpu::MTL4_ISA {
namespace {

template <int M, typename T>
void gemv(const Mxfp8LinearProblem& p, const LinearPointers<T>& ptr, const FloatRows& x, int64_t m) {
  torch::stable::parallel_for(0, p.n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) dot_column<M>(p, ptr, x, m, n);
  });
}

template <typename T>
void few_rows(const Mxfp8LinearProblem& p, const LinearPointers<T>& ptr) {
#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)
  if constexpr (sizeof(T) == 2) {
    if (p.m == 1 && dot_gemv<1>(p, ptr)) return;
    if (p.m == 2 && dot_gemv<2>(p, ptr)) return;
    if ((p.m == 3 || p.m == 4) && dot_gemv<4>(p, ptr)) return;
  }
#endif
  const int64_t stride = round_up(p.k, kMxBlock);
  const Buffer<float> rows(smaller(p.m, kGemvRows) * stride);
  FloatRows x{rows.get(), stride, {}};
  for (int64_t m = 0; m < p.m;) {
    const int64_t left = p.m - m, take = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    to_float_rows(ptr.x + m * p.k, take, p.k, x);
    if (take == 8) gemv<8>(p, ptr, x, m);
    if (take == 4) gemv<4>(p, ptr, x, m);
    if (take == 2) gemv<2>(p, ptr, x, m);
    if (take == 1) gemv<1>(p, ptr, x, m);
    m += take;
  }
}

template <typename T>
void linear(const Mxfp8LinearProblem& p, const LinearPointers<T>& ptr) {
  if (p.k == 0 || p.m <= 2) return few_rows(p, ptr);
#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)
  if constexpr (sizeof(T) == 2) {
#if defined(MTL4_AMX)
    return p.m <= 16 ? gemm<AmxTile<1, kBf16Planes<T>>>(p, ptr) : gemm<AmxTile<2, kBf16Planes<T>>>(p, ptr);
#else
    return p.m <= 4 ? few_rows(p, ptr) : gemm<DotTile<kBf16Planes<T>>>(p, ptr);
#endif
  }
#endif
  if (p.m <= kGemvRows) return few_rows(p, ptr);
  return p.m <= kLanes ? gemm<FloatTile<1>>(p, ptr) : gemm<FloatTile<2>>(p, ptr);
}

}  // namespace

void mxfp8_linear(const Mxfp8LinearProblem& p, const void* x, const uint8_t* weight, const uint8_t* scale,
                  const void* bias, void* out) {
  by_dtype(p.dtype, [&]<typename T>(T) {
    linear<T>(p, {static_cast<const T*>(x), weight, scale, static_cast<const T*>(bias), static_cast<T*>(out)});
  });
}

}  // namespace mtl4::cpu::MTL4_ISA
