// The work of a matmul2d, done for all threads of the scope by the last one to arrive: gather, multiply, scatter.
#pragma once
#include "matmul2d_rules.h"
namespace msl {
// What one thread brought to `run`.
template <class L, class R, class C> struct MatmulOperands {
  L *left;
  R *right;
  C *destination;
};

template <class Op> struct MatmulCompute {
  static constexpr auto D = Op::descriptor;
  static constexpr int M = D.m, N = D.n, K = Op::K, BLOCK = 64; // columns of K at a time

  // What the host checks of an MTLTensor and nothing checks of a tensor_inline.
  template <class View> MSL_UNCHECKED static void check_view(const View &v, const char *side) {
    if (v.strides[0] != 1)
      msl_report("tensor-stride", "the %s operand has stride %ld in its first dimension, which must be 1", side,
                 v.strides[0]);
    if constexpr (View::format) {
      for (int d = 1; d < View::rank; d++)
        if (v.strides[d] * View::bits % 1024)
          msl_report("tensor-alignment",
                     "the %s operand has rows %ld elements of %d bits apart: for packed and FP8 formats "
                     "it must be a multiple of 128 bytes",
                     side, v.strides[d], View::bits);
    }
    for (int d = 0; d < View::rank; d++)
      if (v.extents.extent(d) > v.left[d] && v.left[d] > 0)
        msl_report("tensor-extent",
                   "the %s operand is a slice of static size %ld in dimension %d where the tensor has %ld "
                   "left: such slices are not cut at the edge",
                   side, (long)v.extents.extent(d), d, v.left[d]);
  }
  template <class View> MSL_UNCHECKED static void check_k(const View &v, int dimension, const char *side) {
    if (K > 0 && dimension < View::rank && v.extents.extent(dimension) < K)
      msl_report("tensor-extent", "K is %d, static, and the %s operand has %ld: elements beyond the edge are undefined",
                 K, side, (long)v.extents.extent(dimension));
  }

  // out[r][c] = the operand at logical (r0 + r, c0 + c), zero beyond its extents. TRANSPOSED: it is stored so.
  template <class Acc, bool TRANSPOSED, class View>
  MSL_UNCHECKED static void gather_tensor(const View &v, long r0, long c0, int rows, int cols, Acc *out) {
    long height = TRANSPOSED ? cols : rows, width = TRANSPOSED ? rows : cols; // of the block as it is stored
    long x0 = TRANSPOSED ? r0 : c0, y0 = TRANSPOSED ? c0 : r0;
    long extent_x = v.extents.extent(0), extent_y = View::rank > 1 ? v.extents.extent(View::rank > 1) : 1;
    for (long y = 0; y < height; y++) {
      long inside = y0 + y < extent_y ? extent_x - x0 : 0;
      if (inside > width) inside = width;
      if (v.strides[0] == 1) v.check_row(x0, y0 + y, inside);
      for (long x = 0; x < width; x++) {
        Acc &to = TRANSPOSED ? out[x * cols + y] : out[y * cols + x];
        if (x >= inside) {
          to = 0;
          continue;
        }
        if (v.strides[0] != 1) v.check_element(x0 + x, y0 + y, MSL_READ);
        to = v.template load<Acc>(x0 + x, y0 + y);
      }
    }
  }
  template <class Acc, bool TRANSPOSED, class T, class Part> MSL_UNCHECKED static void
  gather_cooperative(void **threads, unsigned n, Part part, long r0, long c0, int rows, int cols, Acc *out) {
    constexpr bool integral = metal::is_integral_v<Acc>;
    int policy = msl_layout();
    for (int i = 0; i < rows * cols; i++) out[i] = integral ? Acc(0) : (Acc)__builtin_nanf("");
    for (unsigned t = 0; t < n; t++) {
      if (!threads[t]) continue;
      const T *tensor = part(threads[t]);
      for (int e = 0; e < T::get_capacity(); e++) {
        int x, y;
        if (!T::layout::coord(policy, t, e, x, y)) continue;
        long r = (TRANSPOSED ? x : y) - r0, c = (TRANSPOSED ? y : x) - c0;
        if (r >= 0 && r < rows && c >= 0 && c < cols) out[r * cols + c] = (Acc)tensor->d_[e];
      }
    }
  }
  template <class Acc, class C> MSL_UNCHECKED static void scatter_tensor(C &tensor, const Acc *c) {
    using T = typename C::value_type;
    auto v = tensor.view();
    check_view(v, "destination");
    for (int i = 0; i < M && (C::R < 2 || i < v.extents.extent(C::R > 1)); i++)
      for (int j = 0; j < N && j < v.extents.extent(0); j++) {
        T *to = v.at(j, i);
        if (Op::accumulates) msl_check(to, sizeof(T), MSL_READ);
        msl_check(to, sizeof(T), MSL_WRITE);
        *to = (T)(Op::accumulates ? (Acc)*to + c[i * N + j] : c[i * N + j]);
      }
  }
  template <class Acc, class C, class Part>
  MSL_UNCHECKED static void scatter_cooperative(void **threads, unsigned n, Part part, const Acc *c) {
    using T = typename C::value_type;
    int policy = msl_layout();
    for (unsigned t = 0; t < n; t++) {
      if (!threads[t]) continue;
      C *tensor = part(threads[t]);
      for (int e = 0; e < C::get_capacity(); e++) {
        int x, y;
        if (!C::layout::coord(policy, t, e, x, y)) continue;
        T &to = tensor->d_[e];
        to = (T)(Op::accumulates ? (Acc)to + c[y * N + x] : c[y * N + x]);
      }
    }
  }

  template <class L, class R> MSL_UNCHECKED static long length_of_k(const L &left, const R &right) {
    if constexpr (K > 0) return K;
    else {
      constexpr int dl = D.transpose_left ? 1 : 0, dr = D.transpose_right ? 0 : 1;
      auto l = left.view();
      auto r = right.view();
      long k = dl < L::R ? l.extents.extent(dl) : 1, other = dr < R::R ? r.extents.extent(dr) : 1;
      if (k != other) msl_report("tensor-extent", "K is %ld in the left operand and %ld in the right one", k, other);
      return k < other ? k : other;
    }
  }

  template <class L, class R, class C>
  MSL_UNCHECKED __attribute__((noinline)) static void run(void **threads, unsigned n) {
    using namespace metal;
    using Operands = MatmulOperands<L, R, C>;
    using Acc = conditional_t<is_integral_v<typename C::value_type>, int, float>;
    Operands *any = nullptr;
    for (unsigned i = 0; i < n && !any; i++) any = (Operands *)threads[i];
    Acc *c = (Acc *)msl_scratch(sizeof(Acc) * (M * N + M * BLOCK + BLOCK * N)), *a = c + M * N, *b = a + M * BLOCK;
    for (int i = 0; i < M * N; i++) c[i] = 0;

    if constexpr (is_tensor_v<L>) {
      check_view(any->left->view(), "left");
      check_k(any->left->view(), D.transpose_left ? 1 : 0, "left");
    }
    if constexpr (is_tensor_v<R>) {
      check_view(any->right->view(), "right");
      check_k(any->right->view(), D.transpose_right ? 0 : 1, "right");
    }
    long k = length_of_k(*any->left, *any->right);
    for (long k0 = 0; k0 < k; k0 += BLOCK) {
      int length = k - k0 < BLOCK ? (int)(k - k0) : BLOCK;
      if constexpr (is_tensor_v<L>) gather_tensor<Acc, D.transpose_left>(any->left->view(), 0, k0, M, length, a);
      else
        gather_cooperative<Acc, D.transpose_left, L>(
            threads, n, [](void *o) { return ((Operands *)o)->left; }, 0, k0, M, length, a);
      if constexpr (is_tensor_v<R>) gather_tensor<Acc, D.transpose_right>(any->right->view(), k0, 0, length, N, b);
      else
        gather_cooperative<Acc, D.transpose_right, R>(
            threads, n, [](void *o) { return ((Operands *)o)->right; }, k0, 0, length, N, b);
      for (int i = 0; i < M; i++)
        for (int j = 0; j < length; j++) {
          Acc x = a[i * length + j];
          for (int column = 0; column < N; column++) c[i * N + column] += x * b[j * N + column];
        }
    }
    if constexpr (is_tensor_v<C>) scatter_tensor(*any->destination, c);
    else scatter_cooperative<Acc, C>(threads, n, [](void *o) { return ((Operands *)o)->destination; }, c);
  }
  // As a simdgroup operation, which passes the mask of its lanes.
  template <class L, class R, class C>
  MSL_UNCHECKED __attribute__((noinline)) static void run_simdgroup(void **lanes, unsigned) {
    run<L, R, C>(lanes, 32);
  }
};
} // namespace msl
