// Many rows of x on matmul2d with fp8 operands that have a plane of scales: the weight is read as it lies in memory.
//
// The other operand has to be half. x of halves is read as it is, x of bfloats as narrow.h left it, with a factor for
// each row; rows for which that cannot be done, or whose sums do not come out finite, are left to wide_rows().
#pragma once

#include <metal_cooperative_tensor>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>

#include "mxfp8_linear/tensor_ops.h"

constant constexpr int kPlaneStep = 128;  // k is a multiple of it, as the rows of fp8 operands are

using ScalePlane = tensor_blockwise<tensor_plane_scales, device metal_fp8_ue8m0_format, 32, 1>;

// What becomes of a sum: multiplied by its row's factor, which is 1 for x of halves.
struct NoFactor {
  float operator()(float sum, long) const thread { return sum; }
};

struct RowFactor {
  device const float* factor;
  device atomic_uint* wide;
  long rows;

  float operator()(float sum, long row) const thread {
    if (row >= rows) return 0;
    if ((as_type<uint>(sum) & 0x7f800000) == 0x7f800000) atomic_store_explicit(wide + row, 1u, memory_order_relaxed);
    return sum * factor[row];
  }
};

template <int kRows, typename T, typename Finish>
void matmul_scale_planes(device half* x, device uchar* weight, device uchar* scale, device const T* bias, device T* out,
                         ParamsRef p, Finish finish, uint2 group) {
  using namespace mpp::tensor_ops;
  const long m0 = p.first_row + long(group.y) * kRows, n0 = p.first_column + long(group.x) * kTileColumns;
  const int rows = int(min(p.m - m0, long(kRows))), columns = int(min(p.n - n0, long(kTileColumns))), k = int(p.k);
  // Pointers move to the tile, slices only along k: offsets of slices wrap at 2 GiB.
  tensor<device half, dextents<int, 2>, tensor_inline> left(x + m0 * p.k, dextents<int, 2>(k, rows),
                                                            array<int, 2>{1, k});
  tensor<device metal_fp8_e4m3_format, dextents<int, 2>, tensor_inline, ScalePlane> right(
      weight + n0 * p.weight_stride, dextents<int, 2>(k, columns), array<int, 2>{1, int(p.weight_stride)},
      ScalePlane(scale + n0 * p.scale_stride));
  constexpr auto descriptor = matmul2d_descriptor(kRows, kTileColumns, kPlaneStep, false, true, false,
                                                  matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<descriptor, execution_simdgroups<kTileSimdgroups>> op;
  auto sums = op.template get_destination_cooperative_tensor<remove_addrspace_t<decltype(left)>,
                                                             remove_addrspace_t<decltype(right)>, float>();
  fill(sums, 0);
  for (int from = 0; from < k; from += kPlaneStep) {
    auto left_step = left.slice(from, 0);
    auto right_step = right.slice(from, 0);
    op.run(left_step, right_step, sums);
    // Orders nothing: it keeps the simdgroups together, so that they find each other's operands in the cache.
    threadgroup_barrier(mem_flags::mem_none);
  }
#pragma clang loop unroll(full)
  for (ushort i = 0; i < sums.get_capacity(); ++i) {
    if (!sums.is_valid_element(i)) continue;
    const auto place = sums.get_multidimensional_index(i);
    store_with_bias(out, bias, p, m0 + place[1], n0 + place[0], finish(sums[i], m0 + place[1]));
  }
}
