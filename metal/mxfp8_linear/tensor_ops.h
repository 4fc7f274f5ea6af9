// Many rows of x on matmul2d, from tiles in threadgroup memory: the weight decoded to bfloats, x as half or bfloat.
#pragma once

#include <metal_cooperative_tensor>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>

#include "mxfp8_linear/tiles.h"
#include "tile/tensor_view.h"

template <int kRows, typename T>
struct TensorTiles {
  alignas(16) T x[kRows * kMxBlock];
  alignas(16) bfloat weight[kTileColumns * kMxBlock];
  TileScales scales;
};

template <int kRows, typename T>
void matmul_tensor_ops(device const T* x, device const uchar* weight, device const uchar* scale, device const T* bias,
                       device T* out, ParamsRef p, threadgroup TensorTiles<kRows, T>* buffers, uint2 group,
                       uint thread_index) {
  using namespace mpp::tensor_ops;
  const long m0 = p.first_row + long(group.y) * kRows, n0 = p.first_column + long(group.x) * kTileColumns;
  using Left = tensor<threadgroup T, dextents<int, 2>, tensor_inline>;
  using Right = tensor<threadgroup bfloat, dextents<int, 2>, tensor_inline>;
  constexpr auto descriptor = matmul2d_descriptor(kRows, kTileColumns, kMxBlock, false, true, false,
                                                  matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<descriptor, execution_simdgroups<kTileSimdgroups>> op;
  auto sums = op.template get_destination_cooperative_tensor<Left, Right, float>();
  fill(sums, 0);
  // Two buffers take turns: who writes one has passed the barrier behind which nobody reads it any more.
  for (long k = 0; k < p.k; k += kMxBlock) {
    threadgroup TensorTiles<kRows, T>& tiles = buffers[k / kMxBlock % 2];
    load_x_tile<kRows, kMxBlock>(tiles.x, x, p, m0, k, thread_index);
    load_weight_tile<kMxBlock>(tiles.weight, tiles.scales, weight, scale, p, n0, k, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    Left left(tiles.x, dextents<int, 2>(kMxBlock, kRows));
    Right right(tiles.weight, dextents<int, 2>(kMxBlock, kTileColumns));
    if (!any_rest(tiles.scales)) {
      op.run(left, right, sums);
      continue;
    }
    auto product = op.template get_destination_cooperative_tensor<Left, Right, float>();
    fill(product, 0);
    op.run(left, right, product);
#pragma clang loop unroll(full)
    for (ushort i = 0; i < sums.get_capacity(); ++i)
      if (sums.is_valid_element(i)) sums[i] += product[i] * tiles.scales.rest[sums.get_multidimensional_index(i)[0]];
  }
#pragma clang loop unroll(full)
  for (ushort i = 0; i < sums.get_capacity(); ++i) {
    if (!sums.is_valid_element(i)) continue;
    const auto place = sums.get_multidimensional_index(i);
    store_with_bias(out, bias, p, m0 + place[1], n0 + place[0], sums[i]);
  }
}
