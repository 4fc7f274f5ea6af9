#include <metal_stdlib>
#include <metal_logging>
using namespace metal;
constant os_log tagged("com.example", "kernels");
kernel void talk(device const float4* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    if (i == 1) os_log_default.log("thread %u of %s: %5.2f %v4f", i, "all", x[i].x, x[i]);
    if (i == 2) {
        tagged.log_error("%d%% %x %c %v2d", -5, (uchar)255, 'z', int2(3, -4));
        tagged.log_debug("%.1f %.1f", half(0.5h), bfloat(1.5f));
    }
}
kernel void mistakes(uint i [[thread_position_in_grid]]) {
    os_log_default.log_info("%d", 1.5f);
    os_log_default.log_info("%d %d", 1);
}
