// The work of a matmul2d, done for all threads of the scope by the last one to arrive: gather, multiply, scatter. Sizes
// are arguments here, not templates, so that operations over the same operand types share their code.
#pragma once
#include "matmul2d_rules.h"
namespace msl {
#define MSL_SHARED MSL_UNCHECKED __attribute__((noinline))

// What the host checks of an MTLTensor and nothing checks of a tensor_inline. K is the static K of the operation along
// `dimension`, or 0.
template <class View> MSL_SHARED void check_view(const View &v, const char *side, int k = 0, int dimension = 0) {
  if (v.strides[0] != 1)
    msl_report("tensor-stride", "the %s operand has stride %ld in its first dimension, which must be 1", side,
               v.strides[0]);
  if constexpr (View::format) {
    for (int d = 1; d < View::rank; d++)
      if (v.strides[d] * View::bits % 1024)
        msl_report("tensor-alignment",
                   "the %s operand has rows %ld elements of %d bits apart: for packed and FP8 formats it must be a "
                   "multiple of 128 bytes",
                   side, v.strides[d], View::bits);
  }
  for (int d = 0; d < View::rank; d++)
    if (v.extents.extent(d) > v.left[d] && v.left[d] > 0)
      msl_report("tensor-extent",
                 "the %s operand is a slice of static size %ld in dimension %d where the tensor has %ld left: such "
                 "slices are not cut at the edge",
                 side, (long)v.extents.extent(d), d, v.left[d]);
  if (k && dimension < View::rank && v.extents.extent(dimension) < k)
    msl_report("tensor-extent", "K is %d, static, and the %s operand has %ld: elements beyond the edge are undefined",
               k, side, (long)v.extents.extent(dimension));
}

// out[r][c] = the operand at logical (r0 + r, c0 + c), zero beyond its extents.
template <class Acc, class View>
MSL_SHARED void gather_tensor(const View &v, bool transposed, long r0, long c0, int rows, int cols, Acc *out) {
  long height = transposed ? cols : rows, width = transposed ? rows : cols; // of the block as it is stored
  long x0 = transposed ? r0 : c0, y0 = transposed ? c0 : r0;
  long extent_x = v.extents.extent(0), extent_y = View::rank > 1 ? v.extents.extent(View::rank > 1) : 1;
  for (long y = 0; y < height; y++) {
    long inside = y0 + y < extent_y ? extent_x - x0 : 0;
    inside = inside > width ? width : inside < 0 ? 0 : inside;
    if (v.strides[0] == 1) v.check_row(x0, y0 + y, inside);
    Acc *to = transposed ? out + y : out + y * cols;
    long step = transposed ? cols : 1;
    for (long x = 0; x < inside; x++) {
      if (v.strides[0] != 1) v.check_element(x0 + x, y0 + y, MSL_READ);
      to[x * step] = v.template load<Acc>(x0 + x, y0 + y);
    }
    for (long x = inside; x < width; x++) to[x * step] = 0;
  }
}

// The same from registers; elements that no thread brought are NaN. `tensors` holds one pointer for each thread.
template <class Acc, class T> MSL_SHARED void gather_cooperative(void *const *tensors, unsigned n, bool transposed,
                                                                 long r0, long c0, int rows, int cols, Acc *out) {
  int policy = msl_layout();
  for (int i = 0; i < rows * cols; i++) out[i] = metal::is_integral_v<Acc> ? Acc(0) : (Acc)__builtin_nanf("");
  for (unsigned t = 0; t < n; t++) {
    if (!tensors[t]) continue;
    for (int e = 0; e < T::get_capacity(); e++) {
      int x, y;
      if (!T::layout::coord(policy, t, e, x, y)) continue;
      long r = (transposed ? x : y) - r0, c = (transposed ? y : x) - c0;
      if (r >= 0 && r < rows && c >= 0 && c < cols) out[r * cols + c] = (Acc)((const T *)tensors[t])->d_[e];
    }
  }
}

template <class T, class Acc, class View>
MSL_SHARED void scatter_tensor(const View &v, bool accumulate, int rows, int cols, const Acc *c) {
  for (int i = 0; i < rows && (View::rank < 2 || i < v.extents.extent(View::rank > 1)); i++)
    for (int j = 0; j < cols && j < v.extents.extent(0); j++) {
      T *to = v.at(j, i);
      if (accumulate) msl_check(to, sizeof(T), MSL_READ);
      msl_check(to, sizeof(T), MSL_WRITE);
      *to = (T)(accumulate ? (Acc)*to + c[i * cols + j] : c[i * cols + j]);
    }
}
template <class C, class Acc>
MSL_SHARED void scatter_cooperative(void *const *tensors, unsigned n, bool accumulate, int cols, const Acc *c) {
  using T = typename C::value_type;
  int policy = msl_layout();
  for (unsigned t = 0; t < n; t++) {
    if (!tensors[t]) continue;
    for (int e = 0; e < C::get_capacity(); e++) {
      int x, y;
      if (!C::layout::coord(policy, t, e, x, y)) continue;
      T &to = ((C *)tensors[t])->d_[e];
      to = (T)(accumulate ? (Acc)to + c[y * cols + x] : c[y * cols + x]);
    }
  }
}

// What one thread brought to `run`.
template <class L, class R, class C> struct MatmulOperands {
  L *left;
  R *right;
  C *destination;
};

template <class Op, class L, class R, class C> struct MatmulCompute {
  static constexpr auto D = Op::descriptor;
  static constexpr int M = D.m, N = D.n, K = Op::K, BLOCK = 64; // columns of K at a time
  static constexpr int left_k = D.transpose_left ? 1 : 0, right_k = D.transpose_right ? 0 : 1;
  using Operands = MatmulOperands<L, R, C>;
  using Acc = metal::conditional_t<metal::is_integral_v<typename C::value_type>, int, float>;

  template <class T> static constexpr bool in_memory = metal::is_tensor_v<T>;

  MSL_UNCHECKED static long length_of_k(const Operands &any) {
    if constexpr (K > 0) return K;
    else {
      auto l = any.left->view();
      auto r = any.right->view();
      long left = left_k < L::R ? l.extents.extent(left_k) : 1, right = right_k < R::R ? r.extents.extent(right_k) : 1;
      if (left != right)
        msl_report("tensor-extent", "K is %ld in the left operand and %ld in the right one", left, right);
      return left < right ? left : right;
    }
  }

  MSL_SHARED static void run(void **threads, unsigned n) {
    void *lefts[MSL_MAX_THREADS], *rights[MSL_MAX_THREADS], *destinations[MSL_MAX_THREADS];
    Operands *any = nullptr;
    for (unsigned t = 0; t < n; t++) {
      Operands *o = (Operands *)threads[t];
      lefts[t] = o ? o->left : nullptr;
      rights[t] = o ? o->right : nullptr;
      destinations[t] = o ? o->destination : nullptr;
      if (!any) any = o;
    }
    if constexpr (in_memory<L>) check_view(any->left->view(), "left", K > 0 ? K : 0, left_k);
    if constexpr (in_memory<R>) check_view(any->right->view(), "right", K > 0 ? K : 0, right_k);
    if constexpr (in_memory<C>) check_view(any->destination->view(), "destination");

    Acc *c = (Acc *)msl_scratch(sizeof(Acc) * (M * N + M * BLOCK + BLOCK * N)), *a = c + M * N, *b = a + M * BLOCK;
    for (int i = 0; i < M * N; i++) c[i] = 0;
    long k = length_of_k(*any);
    for (long k0 = 0; k0 < k; k0 += BLOCK) {
      int length = k - k0 < BLOCK ? (int)(k - k0) : BLOCK;
      if constexpr (in_memory<L>) gather_tensor(any->left->view(), D.transpose_left, 0, k0, M, length, a);
      else gather_cooperative<Acc, L>(lefts, n, D.transpose_left, 0, k0, M, length, a);
      if constexpr (in_memory<R>) gather_tensor(any->right->view(), D.transpose_right, k0, 0, length, N, b);
      else gather_cooperative<Acc, R>(rights, n, D.transpose_right, k0, 0, length, N, b);
      if constexpr (metal::is_integral_v<Acc>) msl_multiply_int(a, b, c, M, N, length);
      else msl_multiply_float(a, b, c, M, N, length);
    }
    static constexpr Text types =
        product_types<typename L::element_type, typename R::element_type, typename C::element_type>("matmul2d");
    msl_count_products(types.data(), (msl_size)M * N * k);
    if constexpr (in_memory<C>)
      scatter_tensor<typename C::value_type>(any->destination->view(), Op::accumulates, M, N, c);
    else scatter_cooperative<C>(destinations, n, Op::accumulates, N, c);
  }
  // As a simdgroup operation, which passes the mask of its lanes.
  MSL_UNCHECKED static void run_simdgroup(void **lanes, unsigned) { run(lanes, 32); }
};
#undef MSL_SHARED
} // namespace msl
