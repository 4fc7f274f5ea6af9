// Formats, tensors and matmul2d, for the strict pass: the element type of a tensor carries its address space, and that
// decides who may use it. What does not depend on address spaces is asserted by matmul2d_rules.h in the run build.
#pragma once
namespace metal {
#define MSL_FORMAT(since, n) struct since n{};
MSL_FORMAT(MSL_SINCE_26_4, int4b_format)
MSL_FORMAT(MSL_SINCE_26_4, uint4b_format)
MSL_FORMAT(MSL_SINCE_27, int2b_format)
MSL_FORMAT(MSL_SINCE_27, uint2b_format)
MSL_FORMAT(MSL_SINCE_27, int8b_format)
MSL_FORMAT(MSL_SINCE_27, uint8b_format)
MSL_FORMAT(MSL_SINCE_27, metal_fp4_e2m1_format)
MSL_FORMAT(MSL_SINCE_27, metal_fp8_e4m3_format)
MSL_FORMAT(MSL_SINCE_27, metal_fp8_e5m2_format)
MSL_FORMAT(MSL_SINCE_27, metal_fp8_ue8m0_format)
#undef MSL_FORMAT
template <class T> constexpr bool is_scalar_ = __is_arithmetic(T) || __is_same(T, half) || __is_same(T, bfloat);

template <class F, int N> struct MSL_SINCE_26 packed_numeric_type {
  using storage_type = vec<uchar, N>;
  packed_numeric_type() = default;
  template <int Bytes> explicit packed_numeric_type(vec<uchar, Bytes>);
  storage_type as_storage_type() const;
};
template <int N> using packed_int4b MSL_SINCE_26_4 = packed_numeric_type<int4b_format, N>;
template <int N> using packed_uint4b MSL_SINCE_26_4 = packed_numeric_type<uint4b_format, N>;
template <int N> using packed_int2b MSL_SINCE_27 = packed_numeric_type<int2b_format, N>;
template <int N> using packed_uint2b MSL_SINCE_27 = packed_numeric_type<uint2b_format, N>;
template <int N> using packed_metal_fp4_e2m1 MSL_SINCE_27 = packed_numeric_type<metal_fp4_e2m1_format, N>;
template <int N> using packed_metal_fp8_e4m3 MSL_SINCE_27 = packed_numeric_type<metal_fp8_e4m3_format, N>;
template <int N> using packed_metal_fp8_e5m2 MSL_SINCE_27 = packed_numeric_type<metal_fp8_e5m2_format, N>;
template <class T, class F, int N> MSL_SINCE_27 vec<T, N> unpack(packed_numeric_type<F, N>);
template <class F, class T, int N> MSL_SINCE_27 packed_numeric_type<F, N> pack(vec<T, N>);

constexpr size_t dynamic_extent = (size_t)-1;
template <class I, size_t... E> struct MSL_SINCE_26 extents {
  using index_type = I;
  static constexpr size_t rank() { return sizeof...(E); }
  extents() = default;
  template <class... A> constexpr extents(A...) {}
  I extent(size_t) const;
};
template <class I, class S> struct dextents_;
template <class T, T... I> struct sequence_ {};
template <class I, size_t... S> struct dextents_<I, sequence_<size_t, S...>> {
  using type = extents<I, (S * 0 + dynamic_extent)...>;
};
template <class I, size_t R> using dextents MSL_SINCE_26 =
    typename dextents_<I, __make_integer_seq<sequence_, size_t, R>>::type;

struct tensor_handle {};
struct tensor_inline {};
struct tensor_offset {};
struct tensor_plane_data {};
struct tensor_plane_scales {};

enum class Space_ { none, thread, device, constant, threadgroup };
template <class T> struct in_thread_ {}; // `thread T` as the element type of a tensor
template <class T> struct space_ {
  static constexpr Space_ v = Space_::none;
  using plain = T;
  template <class U> using same = U;
};
#define MSL_SPACE(SPACE, name) \
  template <class T> struct space_<SPACE T> { \
    static constexpr Space_ v = Space_::name; \
    using plain = T; \
    template <class U> using same = SPACE U; \
  };
MSL_SPACE(MSL_DEVICE, device)
MSL_SPACE(MSL_CONSTANT, constant)
MSL_SPACE(MSL_THREADGROUP, threadgroup)
#undef MSL_SPACE
template <class T> struct space_<in_thread_<T>> {
  static constexpr Space_ v = Space_::thread;
  using plain = T;
  template <class U> using same = U;
};

template <class Plane, class F, int... BLOCK> struct MSL_SINCE_27 tensor_blockwise {
  static_assert(space_<F>::v != Space_::none, "tensor_blockwise: the format of the scales needs an address space");
  using data_handle_type = typename space_<F>::template same<uchar> *;
  explicit tensor_blockwise(data_handle_type);
};

template <class T, class Ext, class D = tensor_handle, class... Tags> struct MSL_SINCE_26 tensor {
  static constexpr Space_ space = space_<T>::v;
  static_assert(space != Space_::none, "tensor: the element type needs an address space");
  static_assert(__is_same(D, tensor_inline) || space == Space_::device || space == Space_::constant,
                "tensor: a tensor_handle is in device or constant memory");
  using plain = typename space_<T>::plain;
  using element_type = T;
  using value_type = remove_cv_t<plain>;
  using pointee = conditional_t<is_scalar_<value_type>, plain, uchar>;
  using data_handle_type = typename space_<T>::template same<pointee> *;
  using reference = typename space_<T>::template same<plain> &;
  const void *handle_;
  tensor();
  tensor(const tensor &) = default;
  tensor(const MSL_CONSTANT tensor &); // out of a struct that the host filled
  tensor(const MSL_DEVICE tensor &);
  tensor(data_handle_type, const Ext &);
  template <class U, size_t N> tensor(data_handle_type, const Ext &, const array<U, N> &);
  template <class U, size_t N, class P> tensor(data_handle_type, const Ext &, const array<U, N> &, const P &);
  Ext extents() const;
  int get_extent(size_t) const;
  int get_stride(size_t) const;
  MSL_SINCE_27 size_t get_stride_bytes(size_t) const;
  data_handle_type get_data_handle() const;
  static constexpr size_t get_rank() { return Ext::rank(); }
  template <class E> static constexpr auto sliced_() {
    if constexpr (is_same_v<D, tensor_handle> && !(is_same_v<Tags, tensor_offset> || ...))
      return type_identity<tensor<T, E, D, tensor_offset, Tags...>>{};
    else return type_identity<tensor<T, E, D, Tags...>>{};
  }
  template <class... I> typename decltype(sliced_<dextents<int, sizeof...(I)>>())::type slice(I...) const;
  template <size_t... S, class... I> requires(sizeof...(S) == sizeof...(I) && sizeof...(S) > 0)
  typename decltype(sliced_<metal::extents<int, S...>>())::type slice(I...) const;
  template <class... I> reference operator[](I...) const;
};
template <class T, class E> tensor(T *, const E &) -> tensor<T, E, tensor_inline>;
template <class T, class E, class U, size_t N> tensor(T *, const E &, const array<U, N> &)
    -> tensor<T, E, tensor_inline>;

template <class T> constexpr bool is_tensor_handle_v = false;
template <class T, class E, class... Tags> constexpr bool is_tensor_handle_v<tensor<T, E, tensor_handle, Tags...>> =
    true;
template <class T> constexpr bool is_tensor_inline_v = false;
template <class T, class E, class... Tags> constexpr bool is_tensor_inline_v<tensor<T, E, tensor_inline, Tags...>> =
    true;
template <class T> constexpr bool has_tensor_offset_v = false;
template <class T, class E, class D, class... Tags> constexpr bool has_tensor_offset_v<tensor<T, E, D, Tags...>> =
    (is_same_v<Tags, tensor_offset> || ...);

template <int N> struct execution_threads {
  static constexpr int simdgroups = 0;
};
template <int N> struct execution_simdgroups {
  static constexpr int simdgroups = N;
};
using execution_thread = execution_threads<1>;
using execution_simdgroup = execution_simdgroups<1>;

template <class T> constexpr bool is_shared_ = false; // may a simdgroup reach this operand?
template <class T, class E, class D, class... Tags> constexpr bool is_shared_<tensor<T, E, D, Tags...>> =
    space_<T>::v == Space_::device || space_<T>::v == Space_::threadgroup;
template <class T> constexpr bool is_own_ = false; // may a single thread use this operand?
template <class T, class E, class D, class... Tags> constexpr bool is_own_<tensor<T, E, D, Tags...>> =
    space_<T>::v == Space_::device || space_<T>::v == Space_::thread;

template <class T, class E, int R> struct MSL_SINCE_26 cooperative_tensor {
  using element_type = T;
  struct iterator {
    T &operator*() const;
    iterator &operator++();
    iterator operator++(int);
    bool operator!=(const iterator &) const;
    bool operator==(const iterator &) const;
    array<int, R> get_multidimensional_index() const;
  };
  static constexpr int get_capacity() { return 8; }
  bool is_valid_element(int) const;
  bool is_valid_element(const iterator &) const;
  bool is_valid_element(const T *) const;
  array<int, R> get_multidimensional_index(int) const;
  array<int, R> get_multidimensional_index(const iterator &) const;
  T &operator[](int);
  const T &operator[](int) const;
  T get(int) const;
  void set(int, T);
  iterator begin();
  iterator end();
  template <class It> iterator map_iterator(It);
  template <class Tensor> void load(const Tensor &) {
    static_assert(is_shared_<Tensor>, "cooperative_tensor: load takes a tensor in device or threadgroup memory");
  }
  template <class Tensor> void store(const Tensor &) const {
    static_assert(is_shared_<Tensor>, "cooperative_tensor: store takes a tensor in device or threadgroup memory");
  }
};
template <class T> constexpr bool is_cooperative_ = false;
template <class T, class E, int R> constexpr bool is_cooperative_<cooperative_tensor<T, E, R>> = true;
} // namespace metal

namespace mpp::tensor_ops {
using namespace metal;
template <class T> constexpr T dynamic_length_v = (T)~0u >> 1;
enum class reduction_operation { sum, max, min };
template <class T> struct reduction_operation_identity {
  static constexpr T sum_identity = T(), max_identity = T(), min_identity = T();
};
struct MSL_SINCE_26 matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  int m, n, k;
  bool transpose_left, transpose_right, relaxed_precision;
  mode matmul_mode;
  constexpr matmul2d_descriptor(int m, int n, int k = (int)dynamic_extent, bool transpose_left = false,
                                bool transpose_right = false, bool relaxed_precision = false,
                                mode matmul_mode = mode::multiply)
      : m(m), n(n), k(k), transpose_left(transpose_left), transpose_right(transpose_right),
        relaxed_precision(relaxed_precision), matmul_mode(matmul_mode) {}
};

template <class Scope, class T> constexpr void assert_space_() {
  if constexpr (Scope::simdgroups > 0)
    static_assert(is_cooperative_<T> || is_shared_<T>,
                  "matmul2d: with a simdgroup scope the operands are in device or threadgroup memory");
  else static_assert(is_own_<T>, "matmul2d: with execution_thread the operands are in device or thread memory");
}
template <class T> constexpr bool is_plain_ = __is_same(T, remove_addrspace_t<T>);

// auto: a descriptor is itself refused before MSL 4.0, and by name it could not stand here then.
template <auto D, class S> struct MSL_SINCE_26 matmul2d {
  template <class L, class R, class E, class C = int> requires(is_plain_<L> && is_plain_<R> && is_plain_<E>)
  cooperative_tensor<E, int, 2> get_destination_cooperative_tensor() const;
  template <class L, class R, class E, class C = int>
  cooperative_tensor<E, int, 1> get_row_reduction_destination_cooperative_tensor() const;
  template <class L, class R, class E, class C = int>
  cooperative_tensor<E, int, 1> get_column_reduction_destination_cooperative_tensor() const;
  template <class L, class R, class E, class C = int>
  cooperative_tensor<L, int, 2> get_left_input_cooperative_tensor() const;
  template <class L, class R, class E, class C = int, class Source>
  cooperative_tensor<L, int, 2> get_left_input_cooperative_tensor(const Source &) const;
  template <class L, class R, class E, class C = int>
  cooperative_tensor<R, int, 2> get_right_input_cooperative_tensor() const;
  template <class L, class R, class E, class C = int, class Source>
  cooperative_tensor<R, int, 2> get_right_input_cooperative_tensor(const Source &) const;
  template <class L, class R, class E, class Source> bool is_compatible_as_left_input(const Source &) const;
  template <class L, class R, class E, class Source> bool is_compatible_as_right_input(const Source &) const;
  template <class L, class R, class C> void run(L &, R &, C &) const {
    assert_space_<S, L>();
    assert_space_<S, R>();
    if constexpr (!is_cooperative_<C>) assert_space_<S, C>();
  }
};
template <class A, class B> bool is_iterator_compatible(const A &, const B &);
template <class T, class E, int A, int B> void reduce_rows(cooperative_tensor<T, E, A> &, cooperative_tensor<T, E, B> &,
                                                           reduction_operation = reduction_operation::sum,
                                                           type_identity_t<T> = T(0));
template <class T, class E, int A, int B>
void reduce_columns(cooperative_tensor<T, E, A> &, cooperative_tensor<T, E, B> &,
                    reduction_operation = reduction_operation::sum, type_identity_t<T> = T(0));
} // namespace mpp::tensor_ops
