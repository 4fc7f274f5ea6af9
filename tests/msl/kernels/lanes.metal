// Every simdgroup and quadgroup operation, for a type and under a mask of active lanes.
#include <metal_stdlib>
using namespace metal;

#define ARGS(T) device const T* x [[buffer(0)]], device T* out [[buffer(1)]], constant uint& mask [[buffer(2)]], \
                constant uint& k [[buffer(3)]], uint i [[thread_index_in_simdgroup]]
#define UNARY(op) \
    template <typename T> kernel void u_##op(ARGS(T)) { T v = x[i]; if (mask >> i & 1) v = op(v); out[i] = v; }
#define SHIFT(op) \
    template <typename T> kernel void s_##op(ARGS(T)) { T v = x[i]; if (mask >> i & 1) v = op(v, (ushort)k); out[i] = v; }
#define FILL(op) \
    template <typename T> kernel void f_##op(ARGS(T)) { T v = x[i]; v = op(v, T(-v), (ushort)(k & 31), (ushort)(k >> 8)); out[i] = v; }
#define NAMES(kind, op, T) template [[host_name(#op "_" #T)]] kernel void kind##_##op<T>(ARGS(T));
#define ARITHMETIC(op, P) UNARY(P##_##op) NAMES(u, P##_##op, float) NAMES(u, P##_##op, half) NAMES(u, P##_##op, bfloat) NAMES(u, P##_##op, int)
#define BITS(op, P) UNARY(P##_##op) NAMES(u, P##_##op, int)
#define MOVE(op, P) SHIFT(P##_##op) NAMES(s, P##_##op, half) NAMES(s, P##_##op, int)
#define ALL(P) \
    ARITHMETIC(sum, P) ARITHMETIC(product, P) ARITHMETIC(min, P) ARITHMETIC(max, P) ARITHMETIC(broadcast_first, P) \
    ARITHMETIC(prefix_inclusive_sum, P) ARITHMETIC(prefix_exclusive_sum, P) \
    ARITHMETIC(prefix_inclusive_product, P) ARITHMETIC(prefix_exclusive_product, P) \
    BITS(and, P) BITS(or, P) BITS(xor, P) \
    MOVE(shuffle, P) MOVE(broadcast, P) MOVE(shuffle_xor, P) MOVE(shuffle_up, P) MOVE(shuffle_down, P) \
    MOVE(shuffle_rotate_up, P) MOVE(shuffle_rotate_down, P) \
    FILL(P##_shuffle_and_fill_up) FILL(P##_shuffle_and_fill_down) \
    NAMES(f, P##_shuffle_and_fill_up, int) NAMES(f, P##_shuffle_and_fill_down, int)
ALL(simd)
ALL(quad)

kernel void votes(device const uint* x [[buffer(0)]], device ulong* out [[buffer(1)]], constant uint& mask [[buffer(2)]],
                  uint i [[thread_index_in_simdgroup]]) {
    ulong v[10] = {};
    if (mask >> i & 1) {
        bool yes = x[i] & 1;
        v[0] = (ulong)simd_ballot(yes); v[1] = (ulong)simd_active_threads_mask(); v[2] = simd_all(yes); v[3] = simd_any(yes); v[4] = simd_is_first();
        v[5] = (ushort)quad_ballot(yes); v[6] = (ushort)quad_active_threads_mask(); v[7] = quad_all(yes); v[8] = quad_any(yes); v[9] = quad_is_first();
    }
    for (int n = 0; n < 10; n++) out[i * 10 + n] = v[n];
}
kernel void vectors(device const float4* x [[buffer(0)]], device float4* out [[buffer(1)]], uint i [[thread_index_in_simdgroup]]) {
    out[i] = simd_sum(x[i]) + quad_shuffle_xor(x[i], 1);
}
