// MetalPerformancePrimitives reductions of cooperative tensors, over the rows or the columns of a tile.
#pragma once
#include "cooperative_tensor.h"
#include "math.h"
namespace mpp::tensor_ops {
using namespace metal;
enum class reduction_operation { sum, max, min };
template <class T> struct reduction_operation_identity {
  static constexpr T sum_identity = T(0);
  static constexpr T max_identity = numeric_limits<T>::lowest();
  static constexpr T min_identity = numeric_limits<T>::max();
};
} // namespace mpp::tensor_ops

namespace msl {
using mpp::tensor_ops::reduction_operation;

template <class Source, class Destination> struct Reduce {
  using T = typename Source::element_type;
  using Target = typename Destination::layout;
  struct Operands {
    Source *source;
    Destination *destination;
    reduction_operation operation;
    T identity;
  };

  static T combine(reduction_operation operation, T a, T b) {
    using Wide = metal::conditional_t<metal::is_integral_v<T>, T, float>;
    switch (operation) {
    case reduction_operation::sum: return T(a + b);
    case reduction_operation::max: return (T)metal::max((Wide)a, (Wide)b);
    case reduction_operation::min: return (T)metal::min((Wide)a, (Wide)b);
    }
  }

  MSL_UNCHECKED __attribute__((noinline)) static void run(void **lanes, unsigned mask) {
    T result[Target::cols];
    int policy = msl_layout();
    const Operands &any = *(Operands *)lanes[__builtin_ctz(mask)];
    for (T &x : result) x = any.identity;
    for (int lane = 0; lane < 32; lane++) {
      if (!lanes[lane]) continue;
      for (int e = 0; e < Source::layout::capacity; e++) {
        int x, y;
        if (!Source::layout::coord(policy, lane, e, x, y)) continue;
        T &to = result[Target::is_row ? y : x];
        to = combine(any.operation, to, ((Operands *)lanes[lane])->source->d_[e]);
      }
    }
    for (int lane = 0; lane < 32; lane++) {
      if (!lanes[lane]) continue;
      for (int e = 0; e < Target::capacity; e++) {
        int i, unused;
        if (Target::coord(policy, lane, e, i, unused)) ((Operands *)lanes[lane])->destination->d_[e] = result[i];
      }
    }
  }
};

template <Role ROLE, class Source, class Destination> MSL_INLINE void reduce(Source &source, Destination &destination,
                                                                             reduction_operation operation,
                                                                             typename Source::element_type identity) {
  static_assert(Source::role == Role::destination, "reduce: the source is the destination of a matmul2d");
  static_assert(Destination::role == ROLE,
                "reduce: the destination comes from get_row_reduction_destination_cooperative_"
                "tensor for reduce_rows, from its column twin for reduce_columns");
  static_assert(__is_same(typename Source::element_type, typename Destination::element_type),
                "reduce: source and destination must have the same element type");
  static_assert(Source::layout::threads == 32 && Destination::layout::threads == 32,
                "reduce: the scope is one simdgroup");
  static_assert(Destination::layout::cols ==
                    (ROLE == Role::row_reduction ? Source::layout::rows : Source::layout::cols),
                "reduce: the sizes along the reduction must be equal");
  using Work = Reduce<Source, Destination>;
  typename Work::Operands operands{&source, &destination, operation, identity};
  constexpr const char *name = ROLE == Role::row_reduction ? "reduce_rows" : "reduce_columns";
  msl_simd_op(MSL_OP_UNIFORM, name, &operands, Work::run);
}
} // namespace msl

namespace mpp::tensor_ops {
// The default identity is that of a sum, whatever the operation.
template <class T, class E1, class L1, msl::Role R1, class D>
MSL_INLINE void reduce_rows(cooperative_tensor<T, E1, L1, R1> &source, D &destination,
                            reduction_operation operation = reduction_operation::sum,
                            type_identity_t<T> identity = reduction_operation_identity<T>::sum_identity) {
  msl::reduce<msl::Role::row_reduction>(source, destination, operation, identity);
}
template <class T, class E1, class L1, msl::Role R1, class D>
MSL_INLINE void reduce_columns(cooperative_tensor<T, E1, L1, R1> &source, D &destination,
                               reduction_operation operation = reduction_operation::sum,
                               type_identity_t<T> identity = reduction_operation_identity<T>::sum_identity) {
  msl::reduce<msl::Role::column_reduction>(source, destination, operation, identity);
}

// Does every thread own the reductions of the elements that it owns? The scrambled layout is asked element by element.
template <class Source, class Destination>
MSL_UNCHECKED inline bool is_iterator_compatible(const Source &, const Destination &) {
  using Target = typename Destination::layout;
  if constexpr (Source::R == 2 && Destination::R == 1) {
    int policy = msl_layout();
    for (int lane = 0; lane < Target::threads; lane++)
      for (int e = 0; e < Source::layout::capacity; e++) {
        int x, y;
        if (Source::layout::coord(policy, lane, e, x, y) && Target::slot_of(policy, lane, Target::is_row ? y : x) < 0)
          return false;
      }
    return true;
  } else return __is_same(typename Source::layout, typename Destination::layout);
}
} // namespace mpp::tensor_ops
