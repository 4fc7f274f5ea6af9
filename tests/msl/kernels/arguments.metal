// Small kernels for the arguments of a dispatch: copies, types, threadgroup memory, limits.
#include <metal_stdlib>
using namespace metal;

constant uint width [[function_constant(3)]];

kernel void copy(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant uint& n [[buffer(2)]],
                 uint i [[thread_position_in_grid]]) {
    if (i < n) y[i] = x[i];
}

kernel void copy_rows(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                      constant uint2& strides [[buffer(2)]], uint2 i [[thread_position_in_grid]]) {
    y[i.y * strides.y + i.x] = x[i.y * strides.x + i.x];
}

kernel void copy_vectors(device const float4* x [[buffer(0)]], device float4* y [[buffer(1)]],
                         uint i [[thread_position_in_grid]]) {
    y[i] = x[i];
}

kernel void set_vectors(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    ((device float4*)x)[i].w = 1;
}

kernel void halves(device half* x [[buffer(0)]], device bfloat* y [[buffer(1)]], constant half& h [[buffer(2)]]) {
    x[0] = h;
    y[0] = bfloat(float(h));
}

kernel void reversed(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                     threadgroup float* shared [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]],
                     uint n [[threads_per_threadgroup]]) {
    shared[i] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = shared[n - 1 - i];
}

kernel void big(device float* y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    threadgroup float a[8192];
    threadgroup float b[16];
    a[i] = i + width;
    if (i < 16) b[i] = 0;
    y[i] = a[i];
}

[[max_total_threads_per_threadgroup(64)]]
kernel void small(device float* y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    y[i] = i;
}
