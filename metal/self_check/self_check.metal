// Small products through each way to matmul2d that kernels of this package take. Whether they build on a system, and
// compute what they should, decides which kernels that system is given.
#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;

#include "self_check/params.h"

using Sizes = SelfCheckSizes;

template <typename T, typename... Tags>
using Matrix = tensor<device T, dextents<int, 2>, tensor_inline, Tags...>;

template <typename Right>
inline void multiply(Matrix<half> left, Right right, device float* out) {
  constexpr int kStep = 32;
  constexpr auto descriptor = matmul2d_descriptor(Sizes::m, Sizes::n, kStep, false, true, false,
                                                  matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<descriptor, execution_simdgroup> op;
  auto sum = op.template get_destination_cooperative_tensor<Matrix<half>, Right, float>();
  for (ushort i = 0; i < sum.get_capacity(); ++i)
    if (sum.is_valid_element(i)) sum[i] = 0.0f;
  for (int k = 0; k < Sizes::k; k += kStep) {
    auto left_step = left.slice(k, 0);
    auto right_step = right.slice(k, 0);
    op.run(left_step, right_step, sum);
  }
  for (ushort i = 0; i < sum.get_capacity(); ++i) {
    if (!sum.is_valid_element(i)) continue;
    const auto position = sum.get_multidimensional_index(i);
    out[position[1] * Sizes::n + position[0]] = sum[i];
  }
}

kernel void self_check_tensor_ops(device half* left [[buffer(0)]], device half* right [[buffer(1)]],
                                  device float* out [[buffer(2)]]) {
  multiply(Matrix<half>(left, dextents<int, 2>(Sizes::k, Sizes::m)),
           Matrix<half>(right, dextents<int, 2>(Sizes::k, Sizes::n)), out);
}

#if defined(__HAVE_TENSOR_MULTIPLANE__)
using Scales = tensor_blockwise<tensor_plane_scales, device metal_fp8_ue8m0_format, Sizes::scale_block, 1>;

kernel void self_check_scale_planes(device half* left [[buffer(0)]], device uchar* right [[buffer(1)]],
                                    device float* out [[buffer(2)]], device uchar* scale [[buffer(3)]]) {
  using Scaled = Matrix<metal_fp8_e4m3_format, Scales>;
  multiply(Matrix<half>(left, dextents<int, 2>(Sizes::k, Sizes::m)),
           Scaled(right, dextents<int, 2>(Sizes::k, Sizes::n), array<int, 2>{1, Sizes::k}, Scales(scale)), out);
}
#endif
