// Declarations only: the same MSL text is type-checked with REAL address spaces (clang address_space attributes, plain
// C++ mode). Vectors are clang's built-in ext_vector types here, so loads and stores through any address space work as
// in MSL.
#pragma once
#pragma clang system_header
#include "macros.h"
#define MSL_DEVICE __attribute__((address_space(1)))
#define MSL_CONSTANT __attribute__((address_space(2)))
#define MSL_THREADGROUP __attribute__((address_space(3)))
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;
constexpr half operator""h(long double v) { return (half)v; }
namespace metal {
template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));
template <class T, T V> struct integral_constant {
  static constexpr T value = V;
  constexpr operator T() const { return V; }
};
template <bool B> using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;
template <class A, class B> struct is_same : bool_constant<__is_same(A, B)> {};
template <class A, class B> constexpr bool is_same_v = __is_same(A, B);
template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> {
  using type = T;
};
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F> struct conditional {
  using type = T;
};
template <class T, class F> struct conditional<false, T, F> {
  using type = F;
};
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <class T> struct remove_addrspace {
  using type = T;
};
template <class T> struct remove_addrspace<MSL_DEVICE T> {
  using type = T;
};
template <class T> struct remove_addrspace<MSL_THREADGROUP T> {
  using type = T;
};
template <class T> struct remove_addrspace<MSL_CONSTANT T> {
  using type = T;
};
template <class T> using remove_addrspace_t = typename remove_addrspace<T>::type;
template <class T> struct remove_cv {
  using type = __remove_cv(T);
};
template <class T> using remove_cv_t = __remove_cv(T);
template <class T> using remove_reference_t = __remove_reference_t(T);
template <class T> struct numeric_limits {
  static constexpr T max() { return T(); }
  static constexpr T min() { return T(); }
  static constexpr T lowest() { return T(); }
  static constexpr T infinity() { return T(); }
};
#define MSL_VT(t) \
  using t##2 = vec<t, 2>; \
  using t##3 = vec<t, 3>; \
  using t##4 = vec<t, 4>;
MSL_VT(bool)
MSL_VT(char) MSL_VT(uchar) MSL_VT(short) MSL_VT(ushort) MSL_VT(int) MSL_VT(uint) MSL_VT(long) MSL_VT(ulong) MSL_VT(half)
    MSL_VT(float) MSL_VT(bfloat) template <class D, class... A>
    D msl_make(A...); // vector constructors
template <class D, class S> D as_type(S);
template <class T, size_t N> struct array {
  T d_[N];
  constexpr T &operator[](size_t i) { return d_[i]; }
  constexpr const T &operator[](size_t i) const { return d_[i]; }
};
#define F1(n) template <class T> T n(T);
#define F2(n) \
  template <class T> T n(T, T); \
  template <class T, int N> vec<T, N> n(vec<T, N>, T);
#define FALL \
  F1(exp) \
  F1(exp2) F1(log) F1(log2) F1(sqrt) F1(rsqrt) F1(sin) F1(cos) F1(tanh) F1(fabs) F1(abs) F1(floor) F1(ceil) F1(round) \
      F1(rint) F2(min) F2(max) F2(pow) F2(fmin) F2(fmax)
FALL namespace fast { FALL }
namespace precise {
FALL
}
template <class T> T fma(T, T, T);
template <class T> T clamp(T, T, T);
template <class T> T mix(T, T, T);
template <class T> T select(T, T, bool);
template <class T, int N, class B> vec<T, N> select(vec<T, N>, vec<T, N>, B);
template <class T, int N> T dot(vec<T, N>, vec<T, N>);
template <class T> bool isnan(T);
template <class T> bool isinf(T);
template <class T> T popcount(T);
template <class T> T clz(T);
enum class mem_flags : unsigned { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
mem_flags operator|(mem_flags, mem_flags);
enum memory_order { memory_order_relaxed };
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
F1(simd_sum)
F1(simd_max) F1(simd_min) F1(simd_product) F1(simd_broadcast_first) F1(simd_prefix_inclusive_sum)
    F1(simd_prefix_exclusive_sum) F1(simd_and) F1(simd_or) F1(simd_xor) bool simd_all(bool);
bool simd_any(bool);
#define FS(n) template <class T> T n(T, ushort);
FS(simd_shuffle)
FS(simd_shuffle_xor) FS(simd_shuffle_up) FS(simd_shuffle_down) FS(simd_broadcast)
    FS(quad_shuffle_xor) template <class T>
    struct _atomic {
  using v = T;
  T x;
};
using atomic_int = _atomic<int>;
using atomic_uint = _atomic<uint>;
using atomic_float = _atomic<float>;
template <class T> using atomic = _atomic<T>;
#define AT(n, r, ...) \
  template <class T> r n(volatile MSL_DEVICE _atomic<T> *__VA_ARGS__); \
  template <class T> r n(volatile MSL_THREADGROUP _atomic<T> *__VA_ARGS__);
template <class T> struct id_ {
  using t = T;
};
AT(atomic_load_explicit, T, , memory_order)
AT(atomic_store_explicit, void, , typename id_<T>::t, memory_order)
    AT(atomic_fetch_add_explicit, T, , typename id_<T>::t, memory_order)
        AT(atomic_fetch_max_explicit, T, , typename id_<T>::t, memory_order) AT(atomic_fetch_min_explicit, T, ,
                                                                                typename id_<T>::t, memory_order)
            AT(atomic_exchange_explicit, T, , typename id_<T>::t, memory_order) template <class T, int C = 8, int R = 8>
            struct simdgroup_matrix {
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T);
  vec<T, 2> &thread_elements();
};
using simdgroup_float8x8 = simdgroup_matrix<float>;
using simdgroup_half8x8 = simdgroup_matrix<half>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat>;
template <class T>
void simdgroup_load(simdgroup_matrix<T> &, const MSL_DEVICE T *, ulong = 8, ulong2 = ulong2(0), bool = false);
template <class T>
void simdgroup_load(simdgroup_matrix<T> &, const MSL_THREADGROUP T *, ulong = 8, ulong2 = ulong2(0), bool = false);
template <class T>
void simdgroup_store(simdgroup_matrix<T>, MSL_DEVICE T *, ulong = 8, ulong2 = ulong2(0), bool = false);
template <class T>
void simdgroup_store(simdgroup_matrix<T>, MSL_THREADGROUP T *, ulong = 8, ulong2 = ulong2(0), bool = false);
template <class D, class A, class B, class E> void
simdgroup_multiply_accumulate(simdgroup_matrix<D> &, simdgroup_matrix<A>, simdgroup_matrix<B>, simdgroup_matrix<E>);
template <class T, int C = 8, int R = C> simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
// tensors: the element type carries its address space, as in MSL
constexpr size_t dynamic_extent = (size_t)-1;
template <class T> constexpr T dynamic_length_v = (T)dynamic_extent;
template <class I, size_t... E> struct extents {
  using index_type = I;
  static constexpr size_t rank() { return sizeof...(E); }
  extents() = default;
  template <class... A> constexpr extents(A...) {}
  I extent(size_t) const;
};
template <class I, class S> struct dx_;
template <class T, T... I> struct seq_ {};
template <class I, size_t... S> struct dx_<I, seq_<size_t, S...>> {
  using t = extents<I, (S * 0 + dynamic_extent)...>;
};
template <class I, size_t R> using dextents = typename dx_<I, __make_integer_seq<seq_, size_t, R>>::t;
struct tensor_handle {};
struct tensor_offset {};
struct tensor_inline {};
template <class T> struct not_thread_ {
  static constexpr bool v = false;
};
template <class T> struct not_thread_<MSL_DEVICE T> {
  static constexpr bool v = true;
};
template <class T> struct not_thread_<MSL_THREADGROUP T> {
  static constexpr bool v = true;
};
template <class T> struct not_thread_<const MSL_DEVICE T> {
  static constexpr bool v = true;
};
template <class T, class Ext, class D = tensor_handle, class... Tg> struct tensor {
  static_assert(not_thread_<T>::v, "tensor element type needs an address space (device or threadgroup)");
  using element_type = T;
  using value_type = remove_cv_t<remove_addrspace_t<T>>;
  tensor();
  tensor(T *, const Ext &);
  template <class U, size_t N> tensor(T *, const Ext &, const array<U, N> &);
  int get_extent(size_t) const;
  int get_stride(size_t) const;
  template <class... I> tensor<T, dextents<int, sizeof...(I)>, tensor_offset, Tg...> slice(I...) const;
  template <size_t... S, class... I> requires(sizeof...(S) == sizeof...(I) && sizeof...(S) > 0)
  tensor<T, extents<int, S...>, tensor_offset, Tg...> slice(I...) const;
  template <class... I> T &operator[](I...) const;
};
template <class T, class E> tensor(T *, const E &) -> tensor<T, E, tensor_inline>;
template <class T, class E, class U, size_t N> tensor(T *, const E &, const array<U, N> &)
    -> tensor<T, E, tensor_inline>;
template <int N> struct execution_threads {
  static constexpr int threads = N;
};
template <int N> struct execution_simdgroups {
  static constexpr int threads = 32 * N;
};
using execution_thread = execution_threads<1>;
using execution_simdgroup = execution_simdgroups<1>;
template <class T, class E, int R> struct cooperative_tensor {
  using element_type = T;
  static constexpr int get_capacity() { return 8; }
  bool is_valid_element(int) const;
  bool get_mask(int) const;
  array<int, R> get_multidimensional_index(int) const;
  T &operator[](int);
  const T &operator[](int) const;
  struct iterator {
    T &operator*() const;
    iterator &operator++();
    iterator operator++(int);
    bool operator!=(const iterator &) const;
  };
  iterator begin();
  iterator end();
  template <class It> iterator map_iterator(It);
  template <class TT> void load(const TT &);
  template <class TT> void store(const TT &) const;
};
} // namespace metal
using metal::as_type;
using metal::atomic_float;
using metal::atomic_int;
using metal::atomic_uint;
using metal::float2;
using metal::float3;
using metal::float4;
using metal::half2;
using metal::half3;
using metal::half4;
using metal::int2;
using metal::int3;
using metal::int4;
using metal::memory_order_relaxed;
using metal::msl_make;
using metal::short2;
using metal::uint2;
using metal::uint3;
using metal::uint4;
using metal::ushort2;
using metal::ushort3;
namespace mpp {
namespace tensor_ops {
using namespace metal;
enum class reduction_operation { sum, max, min };
struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  int m, n, k;
  bool tl, tr, rp;
  mode md;
  constexpr matmul2d_descriptor(int m_, int n_, int k_ = (int)dynamic_extent, bool a = false, bool b = false,
                                bool c = false, mode d = mode::multiply)
      : m(m_), n(n_), k(k_), tl(a), tr(b), rp(c), md(d) {}
};
template <class T> struct thread_type_ {
  static constexpr bool v = __is_same(T, remove_addrspace_t<T>);
};
template <matmul2d_descriptor D, class S> struct matmul2d {
  template <class L, class R, class E, class I = int> requires(thread_type_<E>::v)
  cooperative_tensor<E, int, 2> get_destination_cooperative_tensor() const;
  template <class L, class R, class E> cooperative_tensor<L, int, 2> get_left_input_cooperative_tensor() const;
  template <class L, class R, class E, class C>
  cooperative_tensor<L, int, 2> get_left_input_cooperative_tensor(const C &) const;
  template <class L, class R, class E, class C> bool is_compatible_as_left_input(const C &) const;
  template <class L, class R, class E> cooperative_tensor<R, int, 2> get_right_input_cooperative_tensor() const;
  template <class L, class R, class E>
  cooperative_tensor<E, int, 1> get_row_reduction_destination_cooperative_tensor() const;
  template <class L, class R, class C> void run(L &, R &, C &) const;
};
template <class T, class E, int A, int B> void reduce_rows(cooperative_tensor<T, E, A> &, cooperative_tensor<T, E, B> &,
                                                           reduction_operation = reduction_operation::sum,
                                                           typename id_<T>::t = T(0));
} // namespace tensor_ops
} // namespace mpp
namespace msl {
template <class T> T &threadgroup_variable(const void *, const char *);
}
