// MetalPerformancePrimitives reductions of cooperative tensors.
#pragma once
#include "cooperative_tensor.h"
#include "math.h"
namespace mpp::tensor_ops {
using namespace metal;
enum class reduction_operation { sum, max, min };
template <class T, class S, class D> struct RedSlot_ {
  S *s;
  D *d;
  reduction_operation op;
  T id;
};
template <class T, class S, class D, bool ROW> struct Red_ {
  MSL_UNCHECKED __attribute__((noinline)) static void run(void **p, unsigned n) {
    using L = typename S::layout;
    constexpr int NN = ROW ? L::rows : L::cols;
    T v[NN];
    int pol = msl_layout();
    RedSlot_<T, S, D> *f = nullptr;
    for (unsigned t = 0; t < n; t++)
      if (p[t]) {
        f = (RedSlot_<T, S, D> *)p[t];
        break;
      }
    for (int i = 0; i < NN; i++) v[i] = f->id;
    for (unsigned t = 0; t < n; t++)
      if (p[t])
        for (int e = 0; e < L::capacity; e++) {
          int x, y;
          if (!L::coord(pol, t, e, x, y)) continue;
          int k = ROW ? y : x;
          T w = ((RedSlot_<T, S, D> *)p[t])->s->d_[e];
          v[k] = f->op == reduction_operation::sum   ? T(v[k] + w)
                 : f->op == reduction_operation::max ? max(v[k], w)
                                                     : min(v[k], w);
        }
    for (unsigned t = 0; t < n; t++)
      if (p[t]) {
        D *d = ((RedSlot_<T, S, D> *)p[t])->d;
        for (int e = 0; e < D::get_capacity(); e++) {
          int x, y;
          if (D::layout::coord(pol, t, e, x, y)) d->d_[e] = v[e];
        }
      }
  }
  MSL_UNCHECKED static void run32(void **p, unsigned) { run(p, 32); }
};
template <class T, class E1, class E2, class L1, class L2>
MSL_INLINE void reduce_rows(cooperative_tensor<T, E1, L1> &s, cooperative_tensor<T, E2, L2> &d,
                            reduction_operation op = reduction_operation::sum, type_identity_t<T> identity = T(0)) {
  using S = cooperative_tensor<T, E1, L1>;
  using D = cooperative_tensor<T, E2, L2>;
  RedSlot_<T, S, D> x{&s, &d, op, identity};
  if constexpr (L1::threads == 32) msl_simd_op(MSL_OP_UNIFORM, &x, Red_<T, S, D, true>::run32);
  else if constexpr (L1::threads > 32) msl_group_op(&x, Red_<T, S, D, true>::run);
  else {
    void *p = &x;
    Red_<T, S, D, true>::run(&p, 1);
  }
}
template <class T, class E1, class E2, class L1, class L2>
MSL_INLINE void reduce_columns(cooperative_tensor<T, E1, L1> &s, cooperative_tensor<T, E2, L2> &d,
                               reduction_operation op = reduction_operation::sum, type_identity_t<T> identity = T(0)) {
  using S = cooperative_tensor<T, E1, L1>;
  using D = cooperative_tensor<T, E2, L2>;
  RedSlot_<T, S, D> x{&s, &d, op, identity};
  if constexpr (L1::threads == 32) msl_simd_op(MSL_OP_UNIFORM, &x, Red_<T, S, D, false>::run32);
  else if constexpr (L1::threads > 32) msl_group_op(&x, Red_<T, S, D, false>::run);
  else {
    void *p = &x;
    Red_<T, S, D, false>::run(&p, 1);
  }
}
template <class A, class B> MSL_INLINE bool is_iterator_compatible(const A &, const B &) { return true; }
} // namespace mpp::tensor_ops
