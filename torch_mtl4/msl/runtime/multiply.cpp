// Dense products of the blocks that matmul2d gathers: c[m][n] += a[m][k] * b[k][n], in the order of k.
#include "abi.h"

namespace {
template <class T>
__attribute__((always_inline)) inline void multiply(const T *a, const T *b, T *c, int m, int n, int k) {
  for (int i = 0; i < m; i++)
    for (int j = 0; j < k; j++) {
      T x = a[i * k + j];
      for (int column = 0; column < n; column++) c[i * n + column] += x * b[j * n + column];
    }
}
} // namespace

extern "C" {
__attribute__((target("avx2"))) void msl_multiply_float(const float *a, const float *b, float *c, int m, int n, int k) {
  multiply(a, b, c, m, n, k);
}
// Unsigned arithmetic: sums of int32 wrap.
__attribute__((target("avx2"))) void msl_multiply_int(const int *a, const int *b, int *c, int m, int n, int k) {
  multiply((const unsigned *)a, (const unsigned *)b, (unsigned *)c, m, n, k);
}
}
