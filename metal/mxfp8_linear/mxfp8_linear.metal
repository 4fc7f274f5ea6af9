#include <metal_stdlib>
using namespace metal;

#include "mxfp8_linear/pipeline.h"

#include "mxfp8_linear/gemv.h"
#include "mxfp8_linear/simdgroup.h"
#if defined(__HAVE_TENSOR__)
#include "mxfp8_linear/tensor_ops.h"
#endif
#if defined(__HAVE_TENSOR_MULTIPLANE__)
#include "mxfp8_linear/narrow.h"
#include "mxfp8_linear/scale_planes.h"
#endif

template <int M, typename T>
[[kernel, max_total_threads_per_threadgroup(256)]] void mxfp8_gemv(device const T* x [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                           device const uchar* scale [[buffer(2)]],
                           device const T* bias [[buffer(3), function_constant(has_bias)]],
                           device T* out [[buffer(4)]], constant Mxfp8LinearParams& params [[buffer(5)]],
                           uint group [[threadgroup_position_in_grid]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float sums[kGemvMostSimdgroups * gemv_sums<M>()];
  gemv<M>(x, weight, scale, bias, out, params, params.first_row, sums, group, simdgroup, lane);
}

template <int kRows, typename T>
[[kernel, max_total_threads_per_threadgroup(128)]] void mxfp8_simdgroup(device const T* x [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                                device const uchar* scale [[buffer(2)]],
                                device const T* bias [[buffer(3), function_constant(has_bias)]],
                                device T* out [[buffer(4)]], constant Mxfp8LinearParams& params [[buffer(5)]],
                                uint2 group [[threadgroup_position_in_grid]],
                                uint simdgroup [[simdgroup_index_in_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]]) {
  threadgroup SimdgroupTiles<kRows, T> tiles;
  matmul_simdgroup<kRows>(x, weight, scale, bias, out, params, tiles, group, simdgroup, lane);
}

#define MXFP8_GEMV(rows, type)                                                  \
  template [[host_name("mxfp8_gemv_" #rows "_" #type)]] [[kernel]] decltype(mxfp8_gemv<rows, type>) \
  mxfp8_gemv<rows, type>;
#define MXFP8_SIMDGROUP(rows, type)                                                            \
  template [[host_name("mxfp8_simdgroup_" #rows "_" #type)]] [[kernel]] decltype(mxfp8_simdgroup<rows, type>) \
  mxfp8_simdgroup<rows, type>;
#define MXFP8_SIMDGROUP_TIER(type) \
  MXFP8_GEMV(1, type)              \
  MXFP8_GEMV(2, type)              \
  MXFP8_GEMV(4, type)              \
  MXFP8_GEMV(8, type)              \
  MXFP8_SIMDGROUP(32, type)        \
  MXFP8_SIMDGROUP(64, type)
MXFP8_SIMDGROUP_TIER(float)
MXFP8_SIMDGROUP_TIER(half)
MXFP8_SIMDGROUP_TIER(bfloat)

#if defined(__HAVE_TENSOR__)
template <int kRows, typename T>
[[kernel, max_total_threads_per_threadgroup(128)]] void mxfp8_tensor_ops(device const T* x [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                                 device const uchar* scale [[buffer(2)]],
                                 device const T* bias [[buffer(3), function_constant(has_bias)]],
                                 device T* out [[buffer(4)]], constant Mxfp8LinearParams& params [[buffer(5)]],
                                 uint2 group [[threadgroup_position_in_grid]],
                                 uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup TensorTiles<kRows, T> tiles[2];
  matmul_tensor_ops<kRows>(x, weight, scale, bias, out, params, tiles, group, thread_index);
}

#define MXFP8_TENSOR_OPS(rows, type)                                                             \
  template [[host_name("mxfp8_tensor_ops_" #rows "_" #type)]] [[kernel]] decltype(mxfp8_tensor_ops<rows, type>) \
  mxfp8_tensor_ops<rows, type>;
MXFP8_TENSOR_OPS(32, half)
MXFP8_TENSOR_OPS(64, half)
MXFP8_TENSOR_OPS(32, bfloat)
MXFP8_TENSOR_OPS(64, bfloat)
#endif

#if defined(__HAVE_TENSOR_MULTIPLANE__)
template <int kRows>
[[kernel, max_total_threads_per_threadgroup(128)]] void mxfp8_scale_planes_half(device half* x [[buffer(0)]], device uchar* weight [[buffer(1)]],
                                        device uchar* scale [[buffer(2)]],
                                        device const half* bias [[buffer(3), function_constant(has_bias)]],
                                        device half* out [[buffer(4)]],
                                        constant Mxfp8LinearParams& params [[buffer(5)]],
                                        uint2 group [[threadgroup_position_in_grid]]) {
  matmul_scale_planes<kRows>(x, weight, scale, bias, out, params, NoFactor{}, group);
}

template <int kRows>
[[kernel, max_total_threads_per_threadgroup(128)]] void mxfp8_scale_planes_bfloat(device half* narrowed [[buffer(0)]], device uchar* weight [[buffer(1)]],
                                          device uchar* scale [[buffer(2)]],
                                          device const bfloat* bias [[buffer(3), function_constant(has_bias)]],
                                          device bfloat* out [[buffer(4)]],
                                          constant Mxfp8LinearParams& params [[buffer(5)]],
                                          device const float* factor [[buffer(6)]],
                                          device atomic_uint* wide [[buffer(7)]],
                                          uint2 group [[threadgroup_position_in_grid]]) {
  matmul_scale_planes<kRows>(narrowed, weight, scale, bias, out, params, RowFactor{factor, wide, params.m}, group);
}

[[kernel, max_total_threads_per_threadgroup(256)]] void mxfp8_narrow_bfloat(device const bfloat* x [[buffer(0)]], device half* narrowed [[buffer(1)]],
                                    device float* factor [[buffer(6)]], device atomic_uint* wide [[buffer(7)]],
                                    constant Mxfp8LinearParams& params [[buffer(5)]],
                                    uint2 group [[threadgroup_position_in_grid]],
                                    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup ExponentRange range;
  narrow_row(x, narrowed, factor, wide, params, range, params.first_row + group.y, thread_index);
}

[[kernel, max_total_threads_per_threadgroup(256)]] void mxfp8_wide_rows_bfloat(device const bfloat* x [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                                       device const uchar* scale [[buffer(2)]],
                                       device const bfloat* bias [[buffer(3), function_constant(has_bias)]],
                                       device bfloat* out [[buffer(4)]],
                                       constant Mxfp8LinearParams& params [[buffer(5)]],
                                       device const uint* wide [[buffer(7)]],
                                       uint group [[threadgroup_position_in_grid]],
                                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                                       uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float sums[kGemvMostSimdgroups * gemv_sums<1>()];
  wide_rows(x, weight, scale, bias, out, wide, params, sums, group, simdgroup, lane);
}

#define MXFP8_SCALE_PLANES(rows, type)                                                                             \
  template [[host_name("mxfp8_scale_planes_" #rows "_" #type)]] [[kernel]] decltype(mxfp8_scale_planes_##type<rows>) \
  mxfp8_scale_planes_##type<rows>;
MXFP8_SCALE_PLANES(32, half)
MXFP8_SCALE_PLANES(64, half)
MXFP8_SCALE_PLANES(32, bfloat)
MXFP8_SCALE_PLANES(64, bfloat)
#endif
