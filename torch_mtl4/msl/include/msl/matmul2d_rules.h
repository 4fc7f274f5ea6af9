// What Apple's compiler and headers demand of a matmul2d, stated as static_asserts in the words of this project.
#pragma once
#include "cooperative_tensor.h"
#include "matmul2d_types.h"
namespace msl {
template <class D> constexpr bool static_k(D d) { return d.k > 0 && d.k != __INT_MAX__; }

// The descriptor and the scope alone.
template <auto D, class Scope> constexpr void assert_descriptor() {
  static_assert(metal::is_execution_scope_v<Scope>,
                "matmul2d: the scope is execution_thread, execution_simdgroup or execution_simdgroups<N>");
  static_assert(Scope::simdgroups > 0 || Scope::threads == 1,
                "matmul2d: of single threads only execution_thread is a scope");
  static_assert(D.m > 0 && D.n > 0, "matmul2d: M and N are positive and static");
  static_assert(D.k == -1 || D.k > 0, "matmul2d: K is positive, or dynamic_extent");
#if MSL_HAS(400, 2604)
  static_assert(Scope::simdgroups == 0 || D.m % 16 == 0 || D.n % 16 == 0,
                "matmul2d: at least one of M and N must be a multiple of 16");
#endif
  constexpr auto per_thread = [](int n) { return n == 1 || n == 2 || n == 4 || n % 8 == 0; };
  static_assert(Scope::simdgroups > 0 || (per_thread(D.m) && per_thread(D.n)),
                "matmul2d: with execution_thread M and N must be 1, 2, 4 or a multiple of 8");
}

// One operand of `run` that lies in memory.
template <class T> constexpr void assert_tensor() {
  static_assert(__is_same(typename T::index_type, int), "matmul2d: the extents of operands must have index type int");
  static_assert(T::R == 1 || T::R == 2, "matmul2d: operands have rank 1 or 2");
}

template <auto D, class Scope> constexpr void assert_cooperative_input() {
#if !MSL_HAS(400, 2602)
  static_assert(!Scope::threads, "matmul2d: cooperative inputs need macOS 26.2; the tier is " MSL_TIER);
#endif
  static_assert(__is_same(Scope, metal::execution_simdgroup),
                "matmul2d: cooperative inputs need the scope execution_simdgroup");
  static_assert(static_k(D), "matmul2d: K must be static when an input is a cooperative tensor");
}

template <class T> constexpr void assert_cooperative_element() {
  static_assert(!Format<T>, "matmul2d: cooperative inputs hold scalars, not packed formats");
}

template <auto D> constexpr void assert_both_cooperative() {
  static_assert(D.m == 16 || D.m == 32, "matmul2d: with two cooperative inputs M must be 16 or 32");
  static_assert(D.n == 16 || D.n == 32, "matmul2d: with two cooperative inputs N must be 16 or 32");
  static_assert(D.m == 32 || D.n == 32 || D.k == 32,
                "matmul2d: with two cooperative inputs at least one of M, N and K must be 32");
}

template <auto D, class L, class R, class C> constexpr void assert_scales() {
  if constexpr (metal::is_tensor_v<L>)
    static_assert(!L::scaled_ || !D.transpose_left, "matmul2d: a left operand with scales must not be transposed");
  if constexpr (metal::is_tensor_v<R>)
    static_assert(!R::scaled_ || D.transpose_right, "matmul2d: a right operand with scales must be transposed");
  if constexpr (metal::is_tensor_v<C>) static_assert(!C::scaled_, "matmul2d: the destination must not have scales");
}

template <class T> constexpr bool is_operand = metal::is_tensor_v<T> || metal::is_cooperative_tensor_v<T>;

// Operand types as template arguments: without reference and qualifiers, as remove_addrspace_t<decltype(x)> gives them.
template <class L, class R, class E> constexpr void assert_operand_types() {
  static_assert(is_operand<L> && is_operand<R>,
                "matmul2d: the first two template arguments of this function are the types of the operands");
  if constexpr (is_operand<L> && is_operand<R>) assert_types<typename L::element_type, typename R::element_type, E>();
}

template <class A> constexpr void assert_argument() {
  static_assert(__is_lvalue_reference(A) && !__is_const(__remove_reference_t(A)),
                "matmul2d: run takes variables that are not const, no temporaries");
  static_assert(is_operand<__remove_cvref(A)>, "matmul2d: run takes tensors and cooperative tensors");
}

template <auto D, class Scope, class L, class R, class C> constexpr void assert_run() {
  using namespace metal;
  constexpr bool left = is_cooperative_tensor_v<L>, right = is_cooperative_tensor_v<R>;
  if constexpr (!left) assert_tensor<L>();
  if constexpr (!right) assert_tensor<R>();
  if constexpr (!is_cooperative_tensor_v<C>) assert_tensor<C>();
  assert_types<typename L::element_type, typename R::element_type, typename C::element_type>();
  assert_scales<D, L, R, C>();
  if constexpr (left || right) assert_cooperative_input<D, Scope>();
  if constexpr (left && right) assert_both_cooperative<D>();
}

// A destination that becomes an input of the next matmul2d without leaving the registers.
template <class Source, class E, class Input, bool TRANSPOSED> constexpr void assert_conversion() {
  static_assert(metal::is_cooperative_tensor_v<Source>, "matmul2d: an input is converted from a cooperative tensor");
  static_assert(Source::role == Role::destination,
                "matmul2d: an input is converted from the destination of a matmul2d");
  static_assert(Source::layout::threads == 32, "matmul2d: an input is converted from an op of a single simdgroup");
  static_assert(__is_same(typename Source::element_type, E),
                "matmul2d: a converted input keeps its element type: the source must have the type of the input");
  static_assert(Source::layout::rows == Input::rows && Source::layout::cols == Input::cols,
                "matmul2d: a converted input keeps its shape: M x N of the source must be the shape of the input");
  static_assert(!TRANSPOSED, "matmul2d: the side that takes a converted input must not be transposed");
}
} // namespace msl
