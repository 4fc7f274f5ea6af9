// metal_simdgroup_matrix: 8x8, two elements a lane, in Apple's lane order.
#pragma once
#include "element_names.h"
#include "vector.h"
namespace metal {
template <class T, int C = 8, int R = 8, class = void> struct simdgroup_matrix {
  static_assert(C == 8 && R == 8, "simdgroup_matrix is 8x8");
  using value_type = T;
  using storage_type = vec<T, 2>;
  vec<T, 2> e_;
  simdgroup_matrix() = default;
  explicit MSL_INLINE simdgroup_matrix(T d) {
    int r = row(), c = col();
    e_ = vec<T, 2>(r == c ? d : T(0), r == c + 1 ? d : T(0));
  }
  MSL_INLINE vec<T, 2> &thread_elements() { return e_; }
  MSL_INLINE const vec<T, 2> &thread_elements() const { return e_; }
  MSL_INLINE static int row_of(int l) {
    int q = l / 4;
    return (q & 4) + (l / 2) % 4;
  }
  MSL_INLINE static int col_of(int l) {
    int q = l / 4;
    return (q & 2) * 2 + (l % 2) * 2;
  }
  MSL_INLINE static int row() { return row_of(msl_lane()); }
  MSL_INLINE static int col() { return col_of(msl_lane()); }
};
template <class D, class A, class B, class Cc> struct MmaSlot_ {
  D *d;
  const A *a;
  const B *b;
  const Cc *c;
};
template <class D, class A, class B, class Cc> struct Mma_ {
  MSL_UNCHECKED __attribute__((noinline)) static void run(void **p, unsigned mask) {
    float a[8][8], b[8][8], c[8][8];
    using S = MmaSlot_<D, A, B, Cc>;
    using M = simdgroup_matrix<float>;
    for (int l = 0; l < 32; l++) {
      int r = M::row_of(l), k = M::col_of(l);
      for (int j = 0; j < 2; j++) {
        if (!(mask >> l & 1)) {
          a[r][k + j] = b[r][k + j] = c[r][k + j] = __builtin_nanf("");
          continue;
        }
        S *s = (S *)p[l];
        a[r][k + j] = (float)s->a->d[j];
        b[r][k + j] = (float)s->b->d[j];
        c[r][k + j] = s->c ? (float)s->c->d[j] : 0.f;
      }
    }
    for (int i = 0; i < 8; i++)
      for (int k = 0; k < 8; k++)
        for (int j = 0; j < 8; j++) c[i][j] += a[i][k] * b[k][j];
    static constexpr msl::Text types =
        msl::product_types<typename A::value_type, typename B::value_type, typename D::value_type>("simdgroup_matrix");
    msl_count_products(types.data(), 8 * 8 * 8);
    for (int l = 0; l < 32; l++)
      if (mask >> l & 1) {
        S *s = (S *)p[l];
        int r = M::row_of(l), k = M::col_of(l);
        using E = typename D::value_type;
        s->d->d[0] = (E)c[r][k];
        s->d->d[1] = (E)c[r][k + 1];
      }
  }
};
template <class Td, class Ta, class Tb, class Tc>
MSL_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<Td, 8, 8> &d, const simdgroup_matrix<Ta, 8, 8> &a,
                                              const simdgroup_matrix<Tb, 8, 8> &b,
                                              const simdgroup_matrix<Tc, 8, 8> &c) {
  MmaSlot_<vec<Td, 2>, vec<Ta, 2>, vec<Tb, 2>, vec<Tc, 2>> s{&d.e_, &a.e_, &b.e_, &c.e_};
  msl_simd_op(MSL_OP_UNIFORM, nullptr, &s, Mma_<vec<Td, 2>, vec<Ta, 2>, vec<Tb, 2>, vec<Tc, 2>>::run);
}
template <class Td, class Ta, class Tb> MSL_INLINE void simdgroup_multiply(simdgroup_matrix<Td, 8, 8> &d,
                                                                           const simdgroup_matrix<Ta, 8, 8> &a,
                                                                           const simdgroup_matrix<Tb, 8, 8> &b) {
  MmaSlot_<vec<Td, 2>, vec<Ta, 2>, vec<Tb, 2>, vec<Td, 2>> s{&d.e_, &a.e_, &b.e_, nullptr};
  msl_simd_op(MSL_OP_UNIFORM, nullptr, &s, Mma_<vec<Td, 2>, vec<Ta, 2>, vec<Tb, 2>, vec<Td, 2>>::run);
}
template <class T>
MSL_INLINE simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8> &a, const simdgroup_matrix<T, 8, 8> &b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}
template <class T, int C = 8, int R = C>
MSL_INLINE simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(type_identity_t<T> v) {
  simdgroup_matrix<T, C, R> m;
  m.e_ = vec<T, 2>(v);
  return m;
}
template <class T, class U> MSL_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8> &m, const U *src, ulong ld = 8,
                                                           ulong2 origin = ulong2(0), bool tr = false) {
  int r = m.row(), c = m.col();
  for (int j = 0; j < 2; j++) {
    ulong rr = tr ? c + j : r, cc = tr ? r : c + j;
    m.e_.d[j] = (T)src[(rr + origin.d[1]) * ld + cc + origin.d[0]];
  }
}
template <class T, class U> MSL_INLINE void simdgroup_store(const simdgroup_matrix<T, 8, 8> &m, U *dst, ulong ld = 8,
                                                            ulong2 origin = ulong2(0), bool tr = false) {
  int r = m.row(), c = m.col();
  for (int j = 0; j < 2; j++) {
    ulong rr = tr ? c + j : r, cc = tr ? r : c + j;
    dst[(rr + origin.d[1]) * ld + cc + origin.d[0]] = (U)m.e_.d[j];
  }
}
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;
} // namespace metal
using metal::simdgroup_bfloat8x8;
using metal::simdgroup_float8x8;
using metal::simdgroup_half8x8;
