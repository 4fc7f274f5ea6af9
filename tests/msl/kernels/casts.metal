// Explicit conversions between half and bfloat, in every spelling.
#include <metal_stdlib>
using namespace metal;
template <typename T, typename U> T convert(U x) { return T(x); }
template <typename T, class U, int N> vec<T, N> convert_all(vec<U, N> v) { return vec<T, N>(v); }
template <typename T> void fill(thread T (&tile)[2], T x) { tile[0] = (T)x; tile[1] = T(x + T(1)); }
struct Box { half h; half get(int i) const { return h + half(i); } };

kernel void to_bfloat(device const half* h [[buffer(0)]], device bfloat* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    half x = h[i];
    Box box{x};
    half tile[2];
    fill(tile, x);
    device bfloat* o = out + i * 8;
    o[0] = static_cast<bfloat>(x);
    o[1] = bfloat(x);
    o[2] = (bfloat)x;
    o[3] = (bfloat)h[i];
    o[4] = (bfloat)box.get(0);
    o[5] = convert<bfloat>(x);
    o[6] = -(bfloat)-x;
    o[7] = (bfloat)(half)(float)(tile[0] * half(1)) * bfloat(1.0f) + (bfloat)0;
}
kernel void to_half(device const bfloat* b [[buffer(0)]], device half* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    bfloat x = b[i];
    device half* o = out + i * 8;
    o[0] = static_cast<half>(x);
    o[1] = half(x);
    o[2] = (half)x;
    o[3] = (half)b[i];
    o[4] = (x > x) ? half(0) : (half)x;
    o[5] = convert<half>(x);
    o[6] = convert_all<half>(vec<bfloat, 2>(x, x)).y;
    o[7] = half4(bfloat4(x)).w;
}
