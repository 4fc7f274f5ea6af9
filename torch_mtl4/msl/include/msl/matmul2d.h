// MetalPerformancePrimitives matmul2d: the last thread of the scope multiplies for all of them.
#pragma once
#include "cooperative_tensor.h"
#include "math.h"
namespace mpp::tensor_ops {
using namespace metal;
struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  int m, n, k;
  bool transpose_left, transpose_right, relaxed_precision;
  mode matmul_mode;
  constexpr matmul2d_descriptor(int m_, int n_, int k_ = (int)dynamic_extent, bool tl = false, bool tr = false,
                                bool rp = false, mode md = mode::multiply)
      : m(m_), n(n_), k(k_), transpose_left(tl), transpose_right(tr), relaxed_precision(rp), matmul_mode(md) {}
};
template <matmul2d_descriptor D, class Scope, class... Args> struct matmul2d {
  static constexpr matmul2d_descriptor descriptor = D;
  using scope = Scope;
  static constexpr int M = D.m, N = D.n, K = D.k > 0 ? D.k : -1, TH = Scope::threads, KT = K > 0 ? K : 16;
  using dest_layout = coop_layout<N, M, TH, false>;
  using left_layout = coop_layout<D.transpose_left ? M : KT, D.transpose_left ? KT : M, TH, D.transpose_left>;
  using right_layout = coop_layout<D.transpose_right ? KT : N, D.transpose_right ? N : KT, TH, D.transpose_right>;
  template <class L, class R, class E, class I = int, class... X>
  MSL_INLINE cooperative_tensor<remove_cv_t<E>, extents<int, (size_t)N, (size_t)M>, dest_layout>
  get_destination_cooperative_tensor() const {
    return {};
  }
  template <class L, class R, class E, class I = int, class... X>
  MSL_INLINE cooperative_tensor<remove_cv_t<L>, extents<int, (size_t)KT, (size_t)M>, left_layout>
  get_left_input_cooperative_tensor() const {
    return {};
  }
  template <class L, class R, class E, class I = int, class... X>
  MSL_INLINE cooperative_tensor<remove_cv_t<R>, extents<int, (size_t)N, (size_t)KT>, right_layout>
  get_right_input_cooperative_tensor() const {
    return {};
  }
  template <class L, class R, class E, class CT>
  MSL_INLINE auto get_left_input_cooperative_tensor(const CT &src) const {
    cooperative_tensor<remove_cv_t<L>, extents<int, (size_t)KT, (size_t)M>, left_layout> t;
    for (int i = 0; i < t.get_capacity(); i++) t.d_[i] = (L)src.d_[i];
    return t;
  }
  template <class L, class R, class E, class CT> MSL_INLINE bool is_compatible_as_left_input(const CT &) const {
    if constexpr (CT::layout::cols == left_layout::cols && CT::layout::rows == left_layout::rows &&
                  CT::layout::capacity == left_layout::capacity)
      return msl_layout() != 2;
    else return false;
  } // policy 2 answers no, so that the fallback path is tested
  template <class L, class R, class E, class I = int, class... X>
  MSL_INLINE cooperative_tensor<remove_cv_t<E>, extents<int, (size_t)M>, coop_red<dest_layout, true>>
  get_row_reduction_destination_cooperative_tensor() const {
    return {};
  }
  template <class L, class R, class E, class I = int, class... X>
  MSL_INLINE cooperative_tensor<remove_cv_t<E>, extents<int, (size_t)N>, coop_red<dest_layout, false>>
  get_column_reduction_destination_cooperative_tensor() const {
    return {};
  }

  template <class L, class R, class C> struct Slot {
    L *l;
    R *r;
    C *c;
  };
  template <class T> MSL_UNCHECKED static float fl(T v) { return (float)v; }
  // Read an operand into a dense row-major block. TR: stored transposed.
  template <class T, class Acc, bool TR> MSL_UNCHECKED static void
  gather(const T &t, long r0, long c0, int rows, int cols, Acc *out) { // out[r][c] = t at logical (r0 + r, c0 + c)
    constexpr int cd = TR ? 1 : 0, rd = TR ? 0 : 1;
    for (int r = 0; r < rows; r++) {
      bool rin = r0 + r < t.get_extent(rd);
      if (rin && t.s_[cd] == 1) {
        long n = t.get_extent(cd) - c0;
        if (n > cols) n = cols;
        if (n > 0) msl_check(&t.p_[(r0 + r) * t.s_[rd] + c0], n * sizeof(t.p_[0]), MSL_READ);
      }
      for (int c = 0; c < cols; c++) {
        if (!rin || c0 + c >= t.get_extent(cd)) {
          out[r * cols + c] = 0;
          continue;
        }
        auto *q = &t.p_[(r0 + r) * t.s_[rd] + (c0 + c) * t.s_[cd]];
        if (t.s_[cd] != 1) msl_check(q, sizeof(*q), MSL_READ);
        out[r * cols + c] = (Acc)*q;
      }
    }
  }
  template <class L, class R, class C>
  MSL_UNCHECKED __attribute__((noinline)) static void compute(void **p, unsigned n) {
    using S = Slot<L, R, C>;
    int pol = msl_layout();
    S *s0 = nullptr;
    for (unsigned i = 0; i < n; i++)
      if (p[i]) {
        s0 = (S *)p[i];
        break;
      }
    constexpr bool isint = is_integral_v<typename C::value_type>;
    using Acc = conditional_t<isint, int, float>;
    constexpr int KC = 64;
    Acc *c = (Acc *)msl_scratch(sizeof(Acc) * (M * N + M * KC + KC * N)), *a = c + M * N, *b = a + M * KC;
    for (int i = 0; i < M * N; i++) c[i] = 0;
    long kk = K > 0 ? K : 0;
    if constexpr (K < 0) {
      if constexpr (is_tensor_<L>::value) kk = s0->l->get_extent(D.transpose_left ? 1 : 0);
      else if constexpr (is_tensor_<R>::value) kk = s0->r->get_extent(D.transpose_right ? 0 : 1);
      else kk = KT;
    }
    for (long k0 = 0; k0 < kk; k0 += KC) {
      int kc = kk - k0 < KC ? kk - k0 : KC;
      if constexpr (is_tensor_<L>::value) gather<L, Acc, D.transpose_left>(*s0->l, 0, k0, M, kc, a);
      else {
        for (int i = 0; i < M * kc; i++) a[i] = isint ? Acc(0) : (Acc)__builtin_nanf("");
        for (unsigned t = 0; t < n; t++)
          if (p[t])
            for (int e = 0; e < L::get_capacity(); e++) {
              int x, y;
              if (L::layout::coord(pol, t, e, x, y)) {
                int row = D.transpose_left ? x : y;
                long k = (D.transpose_left ? y : x) - k0;
                if (k >= 0 && k < kc) a[row * kc + k] = (Acc)((S *)p[t])->l->d_[e];
              }
            }
      }
      if constexpr (is_tensor_<R>::value) {
        gather<R, Acc, D.transpose_right>(*s0->r, k0, 0, kc, N, b);
      } else {
        for (int i = 0; i < N * kc; i++) b[i] = isint ? Acc(0) : (Acc)__builtin_nanf("");
        for (unsigned t = 0; t < n; t++)
          if (p[t])
            for (int e = 0; e < R::get_capacity(); e++) {
              int x, y;
              if (R::layout::coord(pol, t, e, x, y)) {
                int col = D.transpose_right ? y : x;
                long k = (D.transpose_right ? x : y) - k0;
                if (k >= 0 && k < kc) b[k * N + col] = (Acc)((S *)p[t])->r->d_[e];
              }
            }
      }
      for (int i = 0; i < M; i++)
        for (int k = 0; k < kc; k++) {
          Acc v = a[i * kc + k];
          for (int j = 0; j < N; j++) c[i * N + j] += v * b[k * N + j];
        }
    }
    constexpr bool acc = D.matmul_mode == matmul2d_descriptor::mode::multiply_accumulate;
    if constexpr (is_tensor_<C>::value) {
      auto &t = *s0->c;
      for (int i = 0; i < M && i < t.get_extent(1); i++)
        for (int j = 0; j < N && j < t.get_extent(0); j++) {
          auto *q = &t.p_[j * t.s_[0] + i * t.s_[1]];
          if (acc) msl_check(q, sizeof(*q), MSL_READ);
          msl_check(q, sizeof(*q), MSL_WRITE);
          *q = (typename C::value_type)(acc ? (Acc)*q + c[i * N + j] : c[i * N + j]);
        }
    } else
      for (unsigned t = 0; t < n; t++)
        if (p[t]) {
          C *d = ((S *)p[t])->c;
          for (int e = 0; e < C::get_capacity(); e++) {
            int x, y;
            if (C::layout::coord(pol, t, e, x, y))
              d->d_[e] = (typename C::value_type)(acc ? (Acc)d->d_[e] + c[y * N + x] : c[y * N + x]);
          }
        }
  }
  template <class L, class R, class C>
  MSL_UNCHECKED __attribute__((noinline)) static void compute_simd(void **p, unsigned) {
    compute<L, R, C>(p, 32);
  }
  template <class L, class R, class C> MSL_INLINE void run(L &&l, R &&r, C &&c) const {
    using LT = remove_cvref_t<L>;
    using RT = remove_cvref_t<R>;
    using CT = remove_cvref_t<C>;
    Slot<LT, RT, CT> s{(LT *)&l, (RT *)&r, (CT *)&c};
    if constexpr (TH == 1) {
      void *p = &s;
      compute<LT, RT, CT>(&p, 1);
    } else if constexpr (TH == 32) msl_simd_op(MSL_OP_UNIFORM, &s, compute_simd<LT, RT, CT>);
    else {
      if ((int)msl_threads() != TH)
        msl_report("execution-scope", "execution_simdgroups<%d> used in a threadgroup of %u threads", TH / 32,
                   msl_threads());
      msl_group_op(&s, compute<LT, RT, CT>);
    }
  }
};
} // namespace mpp::tensor_ops
