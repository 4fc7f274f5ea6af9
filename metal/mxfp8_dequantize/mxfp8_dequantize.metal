#include <metal_stdlib>
using namespace metal;

#include "mxfp8_dequantize/pipeline.h"

#include "mxfp8_dequantize/kernel.h"

template <typename T>
[[kernel]] void mxfp8_dequantize(device const uchar* data [[buffer(0)]], device const uchar* scale [[buffer(1)]],
                                 device T* out [[buffer(2)]], constant Mxfp8DequantizeParams& params [[buffer(3)]],
                                 uint2 group [[threadgroup_position_in_grid]],
                                 uint2 position [[thread_position_in_threadgroup]],
                                 uint2 threads [[threads_per_threadgroup]]) {
  dequantize_eight(data, scale, out, params, group, position, threads);
}

template [[host_name("mxfp8_dequantize_float")]] [[kernel]] decltype(mxfp8_dequantize<float>) mxfp8_dequantize<float>;
template [[host_name("mxfp8_dequantize_half")]] [[kernel]] decltype(mxfp8_dequantize<half>) mxfp8_dequantize<half>;
template [[host_name("mxfp8_dequantize_bfloat")]] [[kernel]] decltype(mxfp8_dequantize<bfloat>) mxfp8_dequantize<bfloat>;
