// The kernels of mxfp8_linear in assets of Core AI. The texts that export/coreai writes around them define has_bias,
// aligned and split, and call one of these: `memory` is what its threadgroup shares.
//
// x [M, K], weight [N, K], scale [N, ceil(K / 32)], bias [N], out [M, N]; x and out are dense.
#pragma once

#include "common/coreai.h"
#include "mxfp8_linear/params.h"

using ParamsRef = thread const Mxfp8LinearParams&;

#include "mxfp8_linear/gemv.h"
#include "mxfp8_linear/simdgroup.h"
#include "mxfp8_linear/tensor_ops.h"
#if defined(__HAVE_TENSOR_MULTIPLANE__)
#include "mxfp8_linear/scale_planes.h"
#endif

template <typename T>
inline Mxfp8LinearParams params_of(Operand<T, 2> x, Operand<uchar, 2> weight, Operand<uchar, 2> scale,
                                   Operand<T, 1> bias) {
  return {x.size[0], weight.size[0], weight.size[1], weight.stride[0], scale.stride[0], bias.stride[0], 0, 0};
}

template <typename T, int ROWS>
struct CoreAiGemv {
  struct Memory {
    float sums[kGemvMostSimdgroups * gemv_sums<ROWS>()];
  };

  static void run(Operand<T, 2> x, Operand<uchar, 2> weight, Operand<uchar, 2> scale, Operand<T, 1> bias,
                  Operand<T, 2> out, threadgroup Memory& memory, ThreadPlace at) {
    const Mxfp8LinearParams params = params_of(x, weight, scale, bias);
    gemv<ROWS>(static_cast<device const T*>(x.data), weight.data, scale.data, bias.data, out.data, params,
               long(at.group.y) * ROWS, memory.sums, at.group.x, at.simdgroup, at.lane);
  }
};

template <typename T, int ROWS>
struct CoreAiSimdgroup {
  using Memory = SimdgroupTiles<ROWS, T>;

  static void run(Operand<T, 2> x, Operand<uchar, 2> weight, Operand<uchar, 2> scale, Operand<T, 1> bias,
                  Operand<T, 2> out, threadgroup Memory& memory, ThreadPlace at) {
    const Mxfp8LinearParams params = params_of(x, weight, scale, bias);
    matmul_simdgroup<ROWS>(static_cast<device const T*>(x.data), weight.data, scale.data, bias.data, out.data, params,
                           memory, at.group.xy, at.simdgroup, at.lane);
  }
};

template <typename T, int ROWS>
struct CoreAiTensorOps {
  struct Memory {
    TensorTiles<ROWS, T> tiles[2];
  };

  static void run(Operand<T, 2> x, Operand<uchar, 2> weight, Operand<uchar, 2> scale, Operand<T, 1> bias,
                  Operand<T, 2> out, threadgroup Memory& memory, ThreadPlace at) {
    const Mxfp8LinearParams params = params_of(x, weight, scale, bias);
    matmul_tensor_ops<ROWS>(static_cast<device const T*>(x.data), weight.data, scale.data, bias.data, out.data, params,
                            memory.tiles, at.group.xy, at.thread_index());
  }
};

// Scale planes where the language has them. Nobody can ask Core AI for a language, and one grid serves both.
template <typename T, int ROWS>
struct CoreAiScalePlanes {
#if defined(__HAVE_TENSOR_MULTIPLANE__)
  using Memory = NoMemory;

  static void run(Operand<T, 2> x, Operand<uchar, 2> weight, Operand<uchar, 2> scale, Operand<T, 1> bias,
                  Operand<T, 2> out, threadgroup Memory&, ThreadPlace at) {
    const Mxfp8LinearParams params = params_of(x, weight, scale, bias);
    matmul_scale_planes<ROWS>(x.data, weight.data, scale.data, static_cast<device const T*>(bias.data), out.data,
                              params, NoFactor{}, at.group.xy);
  }
#else
  using Memory = typename CoreAiTensorOps<T, ROWS>::Memory;

  static void run(Operand<T, 2> x, Operand<uchar, 2> weight, Operand<uchar, 2> scale, Operand<T, 1> bias,
                  Operand<T, 2> out, threadgroup Memory& memory, ThreadPlace at) {
    CoreAiTensorOps<T, ROWS>::run(x, weight, scale, bias, out, memory, at);
  }
#endif
};
