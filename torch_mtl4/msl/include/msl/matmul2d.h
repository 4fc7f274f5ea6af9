// MetalPerformancePrimitives matmul2d.
#pragma once
#include "matmul2d_compute.h"
namespace mpp::tensor_ops {
using namespace metal;
template <class T> constexpr T dynamic_length_v = numeric_limits<T>::max();

struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  int m, n, k;
  bool transpose_left, transpose_right, relaxed_precision;
  mode matmul_mode;
  constexpr matmul2d_descriptor(int m, int n, int k = static_cast<int>(dynamic_extent), bool transpose_left = false,
                                bool transpose_right = false, bool relaxed_precision = false,
                                mode matmul_mode = mode::multiply)
      : m(m), n(n), k(k), transpose_left(transpose_left), transpose_right(transpose_right),
        relaxed_precision(relaxed_precision), matmul_mode(matmul_mode) {}
};

template <matmul2d_descriptor D, class Scope, class... Args> struct matmul2d {
  static constexpr matmul2d_descriptor descriptor = D;
  static constexpr int K = msl::static_k(D) ? D.k : -1;
  static constexpr bool accumulates = D.matmul_mode == matmul2d_descriptor::mode::multiply_accumulate;
  using scope = Scope;

private:
  static constexpr int M = D.m, N = D.n, K_TILE = K > 0 ? K : 16, THREADS = Scope::threads;
  template <int COLS, int ROWS, bool TRANSPOSED> using Tile =
      conditional_t<TRANSPOSED, msl::TileLayout<ROWS, COLS, THREADS, true>,
                    msl::TileLayout<COLS, ROWS, THREADS, false>>;
  using DestinationTile = Tile<N, M, false>;
  using LeftTile = Tile<K_TILE, M, D.transpose_left>;
  using RightTile = Tile<N, K_TILE, D.transpose_right>;
  template <class E, class L, msl::Role ROLE> using Cooperative =
      cooperative_tensor<E, extents<int, (size_t)L::cols, (size_t)L::rows>, L, ROLE>;
  template <class E, class L, msl::Role ROLE> using Reduction =
      cooperative_tensor<E, extents<int, (size_t)L::cols>, L, ROLE>;

public:
  template <class L, class R, class E, class Coord = int> MSL_INLINE auto get_destination_cooperative_tensor() const {
    msl::assert_descriptor<D, Scope>();
    msl::assert_operand_types<L, R, E>();
    return Cooperative<E, DestinationTile, msl::Role::destination>();
  }

  // Inputs are asked for by element types, destinations by operand types.
  template <class L, class R, class E, class Coord = int> MSL_INLINE auto get_left_input_cooperative_tensor() const {
    assert_input<L, R, E, L>();
    return Cooperative<L, LeftTile, msl::Role::left>();
  }
  template <class L, class R, class E, class Coord = int> MSL_INLINE auto get_right_input_cooperative_tensor() const {
    assert_input<L, R, E, R>();
    return Cooperative<R, RightTile, msl::Role::right>();
  }
  template <class L, class R, class E, class Coord = int, class Source>
  MSL_INLINE auto get_left_input_cooperative_tensor(const Source &source) const {
    assert_input<L, R, E, L>();
    msl::assert_conversion<Source, L, LeftTile, D.transpose_left>();
    return Cooperative<L, LeftTile, msl::Role::left>(source.d_);
  }
  template <class L, class R, class E, class Coord = int, class Source>
  MSL_INLINE auto get_right_input_cooperative_tensor(const Source &source) const {
    assert_input<L, R, E, R>();
    msl::assert_conversion<Source, R, RightTile, D.transpose_right>();
    return Cooperative<R, RightTile, msl::Role::right>(source.d_);
  }
  // The scrambled layout answers no, so that the way through memory is exercised.
  template <class L, class R, class E, class Source> MSL_INLINE bool is_compatible_as_left_input(const Source &) const {
    assert_input<L, R, E, L>();
    msl::assert_conversion<Source, L, LeftTile, D.transpose_left>();
    return msl_layout() != MSL_LAYOUT_SCRAMBLED;
  }
  template <class L, class R, class E, class Source>
  MSL_INLINE bool is_compatible_as_right_input(const Source &) const {
    assert_input<L, R, E, R>();
    msl::assert_conversion<Source, R, RightTile, D.transpose_right>();
    return msl_layout() != MSL_LAYOUT_SCRAMBLED;
  }

  template <class L, class R, class E, class Coord = int>
  MSL_INLINE auto get_row_reduction_destination_cooperative_tensor() const {
    msl::assert_operand_types<L, R, E>();
    return Reduction<E, msl::ReductionLayout<DestinationTile, true>, msl::Role::row_reduction>();
  }
  template <class L, class R, class E, class Coord = int>
  MSL_INLINE auto get_column_reduction_destination_cooperative_tensor() const {
    msl::assert_operand_types<L, R, E>();
    return Reduction<E, msl::ReductionLayout<DestinationTile, false>, msl::Role::column_reduction>();
  }

  template <class L, class R, class C> MSL_INLINE void run(L &&left, R &&right, C &&destination) const {
    msl::assert_descriptor<D, Scope>();
    (msl::assert_argument<L>(), msl::assert_argument<R>(), msl::assert_argument<C>());
    using Left = remove_cvref_t<L>;
    using Right = remove_cvref_t<R>;
    using Destination = remove_cvref_t<C>;
    msl::assert_run<D, Scope, Left, Right, Destination>();
    using Compute = msl::MatmulCompute<matmul2d, Left, Right, Destination>;
    msl::MatmulOperands<Left, Right, Destination> operands{&left, &right, &destination};
    if constexpr (THREADS == 1) msl_thread_op(&operands, Compute::run);
    else if constexpr (THREADS == 32) msl_simd_op(MSL_OP_UNIFORM, nullptr, &operands, Compute::run_simdgroup);
    else {
      if ((int)msl_threads() != THREADS)
        msl_report("execution-scope", "execution_simdgroups<%d> used in a threadgroup of %u threads", THREADS / 32,
                   msl_threads());
      msl_group_op(&operands, Compute::run);
    }
  }

private:
  template <class L, class R, class E, class Own> static constexpr void assert_input() {
    msl::assert_descriptor<D, Scope>();
    msl::assert_types<L, R, E>();
    msl::assert_cooperative_element<Own>();
    msl::assert_cooperative_input<D, Scope>();
  }
};
} // namespace mpp::tensor_ops
