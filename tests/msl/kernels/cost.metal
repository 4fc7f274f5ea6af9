// Kernels whose bytes and operations can be counted by hand.
#include <metal_stdlib>
using namespace metal;

kernel void strided(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant uint& stride [[buffer(2)]],
                    uint i [[thread_position_in_grid]]) {
    y[i] = x[i * stride];
}
kernel void gather(device const float* x [[buffer(0)]], device const ushort* index [[buffer(1)]], device float* y [[buffer(2)]],
                   uint i [[thread_position_in_grid]]) {
    y[i] = x[index[i]];
}
// What an optimiser would merge, move out of the loop or drop is counted as it is written.
kernel void as_written(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant float& scale [[buffer(2)]],
                       uint i [[thread_position_in_grid]]) {
    float unused = x[i];
    y[i] = x[i] * x[i];
    for (int k = 0; k < 3; k++) y[i] += scale;
}
struct Pair { float first; half second[2]; };
kernel void vectors(device const float3* a [[buffer(0)]], device const packed_float3* b [[buffer(1)]], device const half4* c [[buffer(2)]],
                    device const Pair* d [[buffer(3)]], device float4* y [[buffer(4)]], uint i [[thread_position_in_grid]]) {
    float3 whole = a[i];
    float2 part = a[i].zx;
    float3 packed = float3(b[i]);
    half one = c[i].y;
    Pair pair = d[i];
    y[i] = float4(whole + packed, part.x);
    y[i].yz = float2(pair.first, float(one));
}
// C[M, N] = A[M, K] * B[K, N] through threadgroup memory, with tiles that end outside.
kernel void tiled_matmul(device const float* A [[buffer(0)]], device const float* B [[buffer(1)]], device float* C [[buffer(2)]],
                         constant uint3& sizes [[buffer(3)]], uint2 tg [[threadgroup_position_in_grid]],
                         uint2 t [[thread_position_in_threadgroup]]) {
    threadgroup float a[16][16], b[16][16];
    const uint3 mnk = sizes;
    const uint row = tg.y * 16 + t.y, column = tg.x * 16 + t.x;
    float sum = 0;
    for (uint k0 = 0; k0 < mnk.z; k0 += 16) {
        a[t.y][t.x] = row < mnk.x && k0 + t.x < mnk.z ? A[row * mnk.z + k0 + t.x] : 0;
        b[t.y][t.x] = k0 + t.y < mnk.z && column < mnk.y ? B[(k0 + t.y) * mnk.y + column] : 0;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int k = 0; k < 16; k++) sum += a[t.y][k] * b[k][t.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (row < mnk.x && column < mnk.y) C[row * mnk.y + column] = sum;
}
// Every kind of atomic operation, on both kinds of memory.
kernel void atomics(device atomic_uint* x [[buffer(0)]], device uint* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                    uint t [[thread_index_in_threadgroup]]) {
    threadgroup atomic_int shared;
    if (t == 0) atomic_store_explicit(&shared, 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_max_explicit(&shared, (int)i, memory_order_relaxed);
    uint expected = 7;
    atomic_compare_exchange_weak_explicit(&x[0], &expected, 8u, memory_order_relaxed, memory_order_relaxed);
    atomic_exchange_explicit(&x[1], i, memory_order_relaxed);
    y[i] = atomic_load_explicit(&x[2], memory_order_relaxed);
}
kernel void simdgroup_barriers(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                               ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup float a[96];
    a[t] = i;
    for (ushort k = 0; k <= simdgroup; k++) simdgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = a[t ^ 1];
}
// Lanes that part: each side is an operation of its own, and with a loop, each length of it.
kernel void divergent(device float* y [[buffer(0)]], uint i [[thread_index_in_simdgroup]]) {
    float x = i;
    if (i < 8) x = simd_sum(x);
    else x = simd_max(x);
    for (uint k = 0; k < i / 8; k++) x += simd_shuffle_xor(x, 1);
    y[i] = x;
}
constant float table[4] = {1, 2, 3, 4};
constant bool has_bias [[function_constant(0)]];
kernel void optional(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                     device const float* bias [[buffer(2), function_constant(has_bias)]], uint i [[thread_position_in_grid]]) {
    y[i] = x[i] * table[i & 3];
    if (has_bias) y[i] += bias[i];
}
// Every size that the language copies: as it is, and through a function that takes and returns values.
template <typename T> T passed_on(T x) { return x; }
template <typename T> kernel void copy_values(device const T* x [[buffer(0)]], device T* y [[buffer(1)]], device T* z [[buffer(2)]],
                                              uint i [[thread_position_in_grid]]) {
    y[i] = x[i];
    z[i] = passed_on(x[i]);
}
struct Odd { float a; uchar b[3]; };
struct Nine { packed_float3 x[9]; };
#define COPY(name, T) template [[host_name("copy_" #name)]] kernel void copy_values<T>(device const T*, device T*, device T*, uint);
COPY(bool, bool) COPY(char3, char3) COPY(packed_uchar3, packed_uchar3) COPY(half, half) COPY(bfloat, bfloat) COPY(half3, half3)
COPY(packed_half3, packed_half3) COPY(bfloat4, bfloat4) COPY(int2, int2) COPY(packed_float3, packed_float3) COPY(float3, float3)
COPY(long3, long3) COPY(float3x3, float3x3) COPY(float4x4, float4x4) COPY(odd, Odd) COPY(nine, Nine)
