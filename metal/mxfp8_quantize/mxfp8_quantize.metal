#include <metal_stdlib>
using namespace metal;

#include "mxfp8_quantize/pipeline.h"

#include "mxfp8_quantize/kernel.h"

template <typename T>
[[kernel]] void mxfp8_quantize(device const T* x [[buffer(0)]], device uchar* data [[buffer(1)]],
                               device uchar* scale [[buffer(2)]], constant Mxfp8QuantizeParams& params [[buffer(3)]],
                               uint2 group [[threadgroup_position_in_grid]],
                               uint2 position [[thread_position_in_threadgroup]],
                               uint2 threads [[threads_per_threadgroup]]) {
  quantize_four(x, data, scale, params, scaling, group, position, threads);
}

template [[host_name("mxfp8_quantize_float")]] [[kernel]] decltype(mxfp8_quantize<float>) mxfp8_quantize<float>;
template [[host_name("mxfp8_quantize_half")]] [[kernel]] decltype(mxfp8_quantize<half>) mxfp8_quantize<half>;
template [[host_name("mxfp8_quantize_bfloat")]] [[kernel]] decltype(mxfp8_quantize<bfloat>) mxfp8_quantize<bfloat>;
