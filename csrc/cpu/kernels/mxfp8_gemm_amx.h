// The tile of mxfp8_gemm.h on AMX: bf16 in, float accumulation.
#pragma once

#include "cpu/kernels/amx.h"

#if defined(MTL4_AMX)

#include "cpu/kernels/mxfp8_gemm_bf16.h"

namespace mtl4::cpu::MTL4_ISA {

// kTiles tiles of 16 rows of x against two tiles of 16 rows of the weight.
template <int kTiles, int kPlanes>
struct AmxTile : Bf16Operands<kTiles, kPlanes, kBf16Group> {
  using Operands = Bf16Operands<kTiles, kPlanes, kBf16Group>;
  using Operands::kColumns, Operands::kGroup, Operands::kPerColumn, Operands::kTile;
  static constexpr int64_t kRows = 32, kHeight = 128;
  static constexpr int64_t kDepth = 4096, kDepthForFew = 16384;

  static int64_t stride(int64_t depth) { return round_up(depth, kGroup) + 32; }  // a cache line more: other cache sets
  static uint16_t* row(uint16_t* decoded, int64_t n, int64_t stride) { return decoded + n * stride; }

  using Session = AmxTiles;

  static void multiply(const uint16_t* weight, int64_t stride, const uint16_t* x, int64_t /*rows*/, int64_t k,
                       float* tile, bool add, Ahead) {
    constexpr int64_t kRowBytes = kColumns * sizeof(float);
    float* lower = tile + 16 * kColumns;
    if (add) {
      _tile_loadd(0, tile, kRowBytes);
      _tile_loadd(1, lower, kRowBytes);
      if constexpr (kTiles == 2) _tile_loadd(2, tile + 16, kRowBytes);
      if constexpr (kTiles == 2) _tile_loadd(3, lower + 16, kRowBytes);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    const int64_t weight_bytes = stride * sizeof(uint16_t);
    for (int64_t i = 0; i < k; i += kGroup, x += kGroup * kPerColumn)
      for (int step = 0; step < 2; ++step) {
        _tile_loadd(4, weight + i + step * 32, weight_bytes);
        _tile_loadd(5, weight + 16 * stride + i + step * 32, weight_bytes);
#pragma GCC unroll 2
        for (int q = 0; q < kPlanes; ++q) {
          const uint16_t* columns = x + (2 * q + step) * kTiles * kTile;
          _tile_loadd(6, columns, 64);
          _tile_dpbf16ps(0, 4, 6);
          _tile_dpbf16ps(1, 5, 6);
          if constexpr (kTiles == 2) {
            _tile_loadd(7, columns + kTile, 64);
            _tile_dpbf16ps(2, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
          }
        }
      }
    _tile_stored(0, tile, kRowBytes);
    _tile_stored(1, lower, kRowBytes);
    if constexpr (kTiles == 2) _tile_stored(2, tile + 16, kRowBytes);
    if constexpr (kTiles == 2) _tile_stored(3, lower + 16, kRowBytes);
  }
};

}  // namespace mtl4::cpu::MTL4_ISA

#endif
