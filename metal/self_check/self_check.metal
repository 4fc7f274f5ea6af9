// Small problems whose results are known exactly, by the words and bodies of the kernels themselves and in each language
// that those are compiled in. Whether they build on a system, and compute what they should, decides which kernels that
// system is given. Buffers are bound in the order of csrc/runtime/self_check_cases.h: what is given, then results.
#include <metal_stdlib>
using namespace metal;

// What two languages share comes before the branches, since a file is included only once.
#include "self_check/codec.h"
#include "mxfp8_linear/pipeline.h"
#include "mxfp8_linear/tiles.h"
#if !defined(__HAVE_TENSOR__)
#include "mxfp8_linear/simdgroup.h"
#include "self_check/fragments.h"
#else
#include "mxfp8_linear/tensor_ops.h"
#include "self_check/rows.h"
#endif
#if defined(__HAVE_TENSOR_MULTIPLANE__)
#include "mxfp8_linear/narrow.h"
#include "mxfp8_linear/scale_planes.h"
#endif

#define SELF_CHECK_OF_TYPE(name, T) \
  template [[host_name(#name "_" #T)]] [[kernel]] decltype(name<T>) name<T>;

[[kernel]] void self_check_decode(device uint* decoded [[buffer(0)]], device uint* rest [[buffer(1)]],
                                  uint byte [[threadgroup_position_in_grid]],
                                  uint code [[thread_position_in_threadgroup]]) {
  check_decode(decoded, rest, byte, code);
}

#if !defined(__HAVE_TENSOR__)
template <typename T>
[[kernel]] void self_check_dequantize(device const uchar* data [[buffer(0)]], device const uchar* scale [[buffer(1)]],
                                      constant Mxfp8DequantizeParams& params [[buffer(2)]],
                                      device T* out [[buffer(3)]], uint2 group [[threadgroup_position_in_grid]],
                                      uint2 position [[thread_position_in_threadgroup]],
                                      uint2 threads [[threads_per_threadgroup]]) {
  dequantize_eight(data, scale, out, params, group, position, threads);
}

template <typename T>
[[kernel]] void self_check_quantize(device const T* x [[buffer(0)]], constant Mxfp8QuantizeParams& params [[buffer(1)]],
                                    device uchar* data [[buffer(2)]], device uchar* scale [[buffer(3)]],
                                    uint2 group [[threadgroup_position_in_grid]],
                                    uint2 position [[thread_position_in_threadgroup]],
                                    uint2 threads [[threads_per_threadgroup]]) {
  check_quantize(x, data, scale, params, group, position, threads);
}

template <typename T>
[[kernel, max_total_threads_per_threadgroup(128)]] void self_check_simdgroup(
    device const T* x [[buffer(0)]], device const uchar* weight [[buffer(1)]], device const uchar* scale [[buffer(2)]],
    constant Mxfp8LinearParams& params [[buffer(3)]], device T* out [[buffer(4)]],
    uint2 group [[threadgroup_position_in_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup SimdgroupTiles<32, T> tiles;
  matmul_simdgroup<32>(x, weight, scale, x, out, params, tiles, group, simdgroup, lane);
}

template <typename T>
[[kernel]] void self_check_fragments(device const T* query [[buffer(0)]], device const T* key [[buffer(1)]],
                                     device const T* value [[buffer(2)]], device float* rows [[buffer(3)]],
                                     device float* out [[buffer(4)]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup T keys[SelfCheckFragments::keys * staged_row<T, SelfCheckFragments::head_dim>()];
  threadgroup T values[SelfCheckFragments::keys * staged_row<T, SelfCheckFragments::value_dim>()];
  check_fragments(query, key, value, rows, out, keys, values, lane);
}

#define OF_TYPE(T)                          \
  SELF_CHECK_OF_TYPE(self_check_dequantize, T) \
  SELF_CHECK_OF_TYPE(self_check_quantize, T)   \
  SELF_CHECK_OF_TYPE(self_check_simdgroup, T)  \
  SELF_CHECK_OF_TYPE(self_check_fragments, T)
OF_TYPE(float)
OF_TYPE(half)
OF_TYPE(bfloat)

#else
template <typename T>
[[kernel, max_total_threads_per_threadgroup(128)]] void self_check_tensor_ops(
    device const T* x [[buffer(0)]], device const uchar* weight [[buffer(1)]], device const uchar* scale [[buffer(2)]],
    constant Mxfp8LinearParams& params [[buffer(3)]], device T* out [[buffer(4)]],
    uint2 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup TensorTiles<32, T> tiles[2];
  matmul_tensor_ops<32>(x, weight, scale, x, out, params, tiles, group, thread_index);
}

template <typename T>
[[kernel, max_total_threads_per_threadgroup(32)]] void self_check_rows(
    device const T* query [[buffer(0)]], device const T* key [[buffer(1)]], device const T* value [[buffer(2)]],
    constant SelfCheckRowsParams& params [[buffer(3)]], device float* rows [[buffer(4)]], device T* out [[buffer(5)]]) {
  threadgroup T memory[kTensorRows * kTensorKeys];
  check_rows(query, key, value, params, rows, out, memory);
}

SELF_CHECK_OF_TYPE(self_check_tensor_ops, half)
SELF_CHECK_OF_TYPE(self_check_tensor_ops, bfloat)
SELF_CHECK_OF_TYPE(self_check_rows, float)
SELF_CHECK_OF_TYPE(self_check_rows, half)
SELF_CHECK_OF_TYPE(self_check_rows, bfloat)
#endif

#if defined(__HAVE_TENSOR_MULTIPLANE__)
[[kernel, max_total_threads_per_threadgroup(128)]] void self_check_scale_planes(
    device half* x [[buffer(0)]], device uchar* weight [[buffer(1)]], device uchar* scale [[buffer(2)]],
    constant Mxfp8LinearParams& params [[buffer(3)]], device float* out [[buffer(4)]],
    uint2 group [[threadgroup_position_in_grid]]) {
  matmul_scale_planes<32>(x, weight, scale, (device const float*)out, out, params, NoFactor{}, group);
}

[[kernel, max_total_threads_per_threadgroup(256)]] void self_check_narrow(
    device const bfloat* x [[buffer(0)]], constant Mxfp8LinearParams& params [[buffer(1)]],
    device half* narrowed [[buffer(2)]], device float* factor [[buffer(3)]], device atomic_uint* wide [[buffer(4)]],
    uint2 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup ExponentRange range;
  narrow_row(x, narrowed, factor, wide, params, range, params.first_row + group.y, thread_index);
}
#endif
