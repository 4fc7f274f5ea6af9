// Scale planes of tensors: tensor_blockwise says that blocks of 32 elements along the first dimension share a scale.
#pragma once
#include "formats.h"
namespace metal {
struct tensor_plane_data {};
struct tensor_plane_scales {};
} // namespace metal

namespace msl {
template <int...> inline constexpr bool is_scale_block = false;
template <int FIRST, int... REST> inline constexpr bool is_scale_block<FIRST, REST...> =
    FIRST == 32 && ((REST == 1) && ...);

template <class Plane, class F, int... BLOCK> struct Blockwise {
  static_assert(__is_same(Plane, metal::tensor_plane_scales),
                "tensor_blockwise: the only auxiliary plane is the scales");
  static_assert(__is_same(F, fp8_ue8m0), "tensor_blockwise: scales are metal_fp8_ue8m0_format");
  static_assert(is_scale_block<BLOCK...>,
                "tensor_blockwise: the block is 32 along the first dimension and 1 along the others");

  using data_handle_type = uchar *;
  data_handle_type data = nullptr;
  Blockwise() = default;
  constexpr explicit Blockwise(data_handle_type p) : data(p) {}
};
template <class T> inline constexpr bool is_blockwise = false;
template <class P, class F, int... B> inline constexpr bool is_blockwise<Blockwise<P, F, B...>> = true;
} // namespace msl

namespace metal {
template <class Plane, class F, int... BLOCK> using tensor_blockwise MSL_SINCE_27 = msl::Blockwise<Plane, F, BLOCK...>;
} // namespace metal
