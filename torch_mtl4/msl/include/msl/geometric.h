// metal_geometric.
#pragma once
#include "math.h"
namespace metal {
template <class T, int N> MSL_INLINE constexpr T dot(vec<T, N> a, vec<T, N> b) {
  T s = a.d[0] * b.d[0];
  for (int i = 1; i < N; i++) s = s + a.d[i] * b.d[i];
  return s;
}
template <class T, int N> MSL_INLINE T length_squared(vec<T, N> a) { return dot(a, a); }
template <class T, int N> MSL_INLINE T length(vec<T, N> a) { return sqrt(dot(a, a)); }
template <class T, int N> MSL_INLINE T distance(vec<T, N> a, vec<T, N> b) { return length(a - b); }
template <class T, int N> MSL_INLINE vec<T, N> normalize(vec<T, N> a) { return a / vec<T, N>(length(a)); }
template <class T> MSL_INLINE vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
  return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}
} // namespace metal
