// How messages and costs name the types of elements.
#pragma once
#include "formats.h"
#include "text.h"
namespace msl {
template <class T> constexpr Text element_name() {
  if constexpr (__is_const(T)) return Text("const ") + element_name<__remove_cv(T)>();
  else if constexpr (Format<T>) return T::name;
  else if constexpr (__is_same(T, half)) return "half";
  else if constexpr (__is_same(T, bfloat)) return "bfloat";
  else if constexpr (__is_same(T, float)) return "float";
  else if constexpr (__is_same(T, int8_t)) return "int8_t";
  else if constexpr (__is_same(T, uint8_t)) return "uint8_t";
  else if constexpr (__is_same(T, int32_t)) return "int32_t";
  else if constexpr (__is_same(T, uint32_t)) return "uint32_t";
  else if constexpr (__is_same(T, char)) return "char (write int8_t)";
  else return "another type";
}

// "matmul2d half x half -> float"
template <class L, class R, class D> constexpr Text product_types(const char *operation) {
  return Text(operation) + " " + element_name<__remove_cv(L)>() + " x " + element_name<__remove_cv(R)>() + " -> " +
         element_name<__remove_cv(D)>();
}
} // namespace msl
