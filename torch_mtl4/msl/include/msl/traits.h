// metal_type_traits, metal_utility.
#pragma once
#include "scalar.h"
namespace metal {
using ::bfloat;
using ::half;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::ptrdiff_t;
using ::size_t;
using ::uchar;
using ::uint;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::ulong;
using ::ushort;

template <class T, T V> struct integral_constant {
  static constexpr T value = V;
  using value_type = T;
  using type = integral_constant;
  constexpr operator T() const { return V; }
  constexpr T operator()() const { return V; }
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
template <class T> struct remove_reference {
  using type = __remove_reference_t(T);
};
template <class T> using remove_reference_t = __remove_reference_t(T);
template <class T> struct remove_cv {
  using type = __remove_cv(T);
};
template <class T> using remove_cv_t = __remove_cv(T);
template <class T> struct remove_const {
  using type = __remove_const(T);
};
template <class T> using remove_const_t = __remove_const(T);
template <class T> struct remove_volatile {
  using type = __remove_volatile(T);
};
template <class T> using remove_volatile_t = __remove_volatile(T);
template <class T> struct remove_cvref {
  using type = __remove_cvref(T);
};
template <class T> using remove_cvref_t = __remove_cvref(T);
template <class T> struct remove_pointer {
  using type = __remove_pointer(T);
};
template <class T> using remove_pointer_t = __remove_pointer(T);
template <class T> struct remove_addrspace {
  using type = T;
};
template <class T> using remove_addrspace_t = T;
template <class T> struct decay {
  using type = __decay(T);
};
template <class T> using decay_t = __decay(T);
template <class T> struct add_lvalue_reference {
  using type = T &;
};
template <class T> struct type_identity {
  using type = T;
};
template <class T> using type_identity_t = typename type_identity<T>::type;
template <class T> struct make_unsigned {
  using type = __make_unsigned(T);
};
template <class T> using make_unsigned_t = __make_unsigned(T);
template <class T> struct make_signed {
  using type = __make_signed(T);
};
template <class T> using make_signed_t = __make_signed(T);
#define MSL_TRAIT(n, e) \
  template <class T> struct n : bool_constant<(e)> {}; \
  template <class T> constexpr bool n##_v = (e);
MSL_TRAIT(is_integral, __is_integral(T))
MSL_TRAIT(is_floating_point,
          __is_floating_point(T) || (__is_same(__remove_cv(T), _Float16)) || (__is_same(__remove_cv(T), ::bfloat)))
MSL_TRAIT(is_arithmetic,
          __is_arithmetic(T) || (__is_same(__remove_cv(T), _Float16)) || (__is_same(__remove_cv(T), ::bfloat)))
MSL_TRAIT(is_signed, (__is_signed(T)) || (__is_same(__remove_cv(T), _Float16)) || (__is_same(__remove_cv(T), ::bfloat)))
MSL_TRAIT(is_unsigned, __is_unsigned(T))
MSL_TRAIT(is_void, __is_void(T))
MSL_TRAIT(is_const, __is_const(T)) MSL_TRAIT(is_enum, __is_enum(T)) MSL_TRAIT(is_class, __is_class(T))
    MSL_TRAIT(is_union, __is_union(T)) MSL_TRAIT(is_pointer, __is_pointer(T)) MSL_TRAIT(is_array, __is_array(T))
        MSL_TRAIT(is_scalar,
                  __is_scalar(T) || (__is_same(__remove_cv(T), _Float16)) || (__is_same(__remove_cv(T), ::bfloat)))
            MSL_TRAIT(is_reference, __is_reference(T)) MSL_TRAIT(is_trivial, __is_trivially_copyable(T))
                MSL_TRAIT(is_function, __is_function(T)) template <class A, class B>
                struct is_convertible : bool_constant<__is_convertible(A, B)> {};
template <class A, class B> constexpr bool is_convertible_v = __is_convertible(A, B);
template <class A, class B> struct is_base_of : bool_constant<__is_base_of(A, B)> {};
template <class A, class B> constexpr bool is_base_of_v = __is_base_of(A, B);
template <class T> T declval_() noexcept;
template <class T> __add_rvalue_reference(T) declval() noexcept;
template <class T> constexpr void swap(T &a, T &b) {
  T t = a;
  a = b;
  b = t;
}
template <class T, T... I> struct integer_sequence {
  static constexpr size_t size() { return sizeof...(I); }
};
template <size_t... I> using index_sequence = integer_sequence<size_t, I...>;
template <class T, T N> using make_integer_sequence = __make_integer_seq<integer_sequence, T, N>;
template <size_t N> using make_index_sequence = __make_integer_seq<integer_sequence, size_t, N>;
template <class A, class B> struct pair {
  A first;
  B second;
};
template <class... B> struct _disjunction : bool_constant<(B::value || ...)> {};
template <class... B> struct conjunction : bool_constant<(B::value && ...)> {};
template <class... B> struct disjunction : bool_constant<(B::value || ...)> {};
template <class T> struct underlying_type {
  using type = __underlying_type(T);
};
template <class... T> struct common_type;
template <class A, class B> struct common_type<A, B> {
  using type = __decay(decltype(true ? declval<A>() : declval<B>()));
};
template <class... T> using common_type_t = typename common_type<T...>::type;
} // namespace metal
