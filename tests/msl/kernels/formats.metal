// Codes to values and values to codes, for every format.
#include <metal_stdlib>
#include <metal_packed_numeric>
using namespace metal;

template <typename F, typename T, int N>
kernel void decode(device const uchar* codes [[buffer(0)]], device T* values [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    using packed = packed_numeric_type<F, N>;
    typename packed::storage_type storage;
    constexpr int bytes = sizeof(storage);
    for (int b = 0; b < bytes; b++) storage[b] = codes[i * bytes + b];
    vec<T, N> v = unpack<T>(packed(storage));
    for (int k = 0; k < N; k++) values[i * N + k] = v[k];
}
template <typename F, typename T, int N>
kernel void encode(device const T* values [[buffer(0)]], device uchar* codes [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    vec<T, N> v;
    for (int k = 0; k < N; k++) v[k] = values[i * N + k];
    packed_numeric_type<F, N> p = pack<F>(v);
    constexpr int bytes = sizeof(p);
    for (int b = 0; b < bytes; b++) codes[i * bytes + b] = p.as_storage_type()[b];
}
#define FORMAT_AS(name, F, N, T) \
    template [[host_name("decode_" #name "_" #T)]] kernel void decode<F, T, N>(device const uchar*, device T*, uint); \
    template [[host_name("encode_" #name "_" #T)]] kernel void encode<F, T, N>(device const T*, device uchar*, uint);
#define FORMAT(name, F, N) FORMAT_AS(name, F, N, float) FORMAT_AS(name, F, N, half) FORMAT_AS(name, F, N, bfloat)
FORMAT(e4m3, metal_fp8_e4m3_format, 4)
FORMAT(e5m2, metal_fp8_e5m2_format, 2)
FORMAT(ue8m0, metal_fp8_ue8m0_format, 4)
FORMAT(e2m1, metal_fp4_e2m1_format, 16)
FORMAT(int8, int8b_format, 4)
FORMAT(uint8, uint8b_format, 4)
FORMAT(int4, int4b_format, 8)
FORMAT(uint4, uint4b_format, 16)
FORMAT(int2, int2b_format, 4)
FORMAT(uint2, uint2b_format, 8)

kernel void one_liners(device const float* x [[buffer(0)]], device uchar* code [[buffer(1)]], device float* back [[buffer(2)]],
                       device const ulong* words [[buffer(3)]], device float* nibbles [[buffer(4)]], uint i [[thread_position_in_grid]]) {
    code[i] = pack<metal_fp8_e4m3_format>(float4(x[i])).as_storage_type()[0];
    back[i] = unpack<float>(packed_metal_fp8_e4m3<4>(packed_uchar4(code[i], 0, 0, 0)))[0];
    using word = packed_numeric_type<uint4b_format, 16>;
    vec<float, 16> v = unpack<float>(word(as_type<word::storage_type>(words[i])));
    for (int k = 0; k < 16; k++) nibbles[i * 16 + k] = v[k];
}
