// Textures: reading, writing, sampling with samplers of the kernel and of the host, and mistakes.
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void read_all(texture2d<T, access::read> t [[texture(0)]], device vec<T, 4>* out [[buffer(0)]], uint2 p [[thread_position_in_grid]]) {
    out[p.y * t.get_width() + p.x] = t.read(p);
}
template <typename T>
kernel void write_all(texture2d<T, access::write> t [[texture(0)]], device const vec<T, 4>* in [[buffer(0)]], uint2 p [[thread_position_in_grid]]) {
    t.write(in[p.y * t.get_width() + p.x], ushort2(p));
}
#define READ_WRITE(T) \
    template [[host_name("read_" #T)]] kernel void read_all<T>(texture2d<T, access::read>, device vec<T, 4>*, uint2); \
    template [[host_name("write_" #T)]] kernel void write_all<T>(texture2d<T, access::write>, device const vec<T, 4>*, uint2);
READ_WRITE(float) READ_WRITE(half) READ_WRITE(uint) READ_WRITE(int) READ_WRITE(ushort) READ_WRITE(short)

kernel void sample_all(texture2d<float> t [[texture(0)]], sampler s [[sampler(0)]], device const float2* c [[buffer(0)]],
                       device float4* out [[buffer(1)]], constant int2& offset [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    out[i] = t.sample(s, c[i], level(0), offset);
}
kernel void gather_all(texture2d<float> t [[texture(0)]], sampler s [[sampler(0)]], device const float2* c [[buffer(0)]],
                       device float4* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    out[i] = t.gather(s, c[i], int2(0), component::y);
}
constexpr sampler repeating(coord::normalized, address::repeat, filter::linear);
kernel void sample_half(texture2d<half, access::sample> t [[texture(1)]], device const float2* c [[buffer(0)]], device half4* out [[buffer(1)]],
                        uint i [[thread_position_in_grid]]) {
    out[i] = t.sample(repeating, c[i]);
}
kernel void layers(texture2d_array<float> t [[texture(0)]], texture2d_array<float, access::write> o [[texture(1)]], uint3 p [[thread_position_in_grid]]) {
    constexpr sampler nearest(coord::pixel);
    float4 v = t.sample(nearest, float2(p.xy) + 0.5f, p.z) + t.read(p.xy, p.z);
    o.write(v * float(t.get_array_size()), p.xy, p.z);
}
kernel void in_place(texture2d<float, access::read_write> t [[texture(0)]], uint2 p [[thread_position_in_grid]]) {
    float4 v = t.read(p);
    t.write(v * 2, p);
    t.fence();
    t.write(t.read(p) + 1, p);
}
kernel void neighbours(texture2d<float, access::read_write> t [[texture(0)]], constant uint& ordered [[buffer(0)]], uint2 p [[thread_position_in_grid]]) {
    t.write(float4(p.x), p);
    if (ordered) threadgroup_barrier(mem_flags::mem_texture);
    float4 v = t.read(uint2(p.x ^ 1, p.y));
    if (ordered) threadgroup_barrier(mem_flags::mem_texture);
    t.write(v, p);
}
kernel void outside(texture2d<float, access::read> t [[texture(0)]], texture2d<float, access::write> o [[texture(1)]], device float4* out [[buffer(0)]],
                    uint i [[thread_position_in_grid]]) {
    out[i] = t.read(uint2(t.get_width(), 0));
    o.write(float4(1), uint2(0, o.get_height()));
}
