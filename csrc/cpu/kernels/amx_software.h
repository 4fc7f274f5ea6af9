// AMX's tile instructions as functions, for proving the AMX kernels on a processor that has AVX512-BF16 but no AMX
// (`make amx`). One product rounds as the instruction does: sums of pairs in order of k, subnormals taken for 0.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace mtl4::cpu::MTL4_ISA {

constexpr int kTileRows = 16, kTileRowBytes = 64;

// Undefined at first, as the registers are; every tile has 16 rows of 64 bytes.
inline thread_local float software_tiles[8][kTileRows][kTileRowBytes / sizeof(float)];

inline void load_tile(int tile, const void* from, int64_t stride) {
  for (int r = 0; r < kTileRows; ++r)
    std::memcpy(software_tiles[tile][r], static_cast<const char*>(from) + r * stride, kTileRowBytes);
}

inline void store_tile(int tile, void* to, int64_t stride) {
  for (int r = 0; r < kTileRows; ++r)
    std::memcpy(static_cast<char*>(to) + r * stride, software_tiles[tile][r], kTileRowBytes);
}

inline void clear_tile(int tile) { std::memset(software_tiles[tile], 0, sizeof software_tiles[tile]); }

// c[m][n] += a[m][k] * b[k][n], of pairs of bf16.
inline void multiply_tiles(int c, int a, int b) {
  for (int m = 0; m < kTileRows; ++m) {
    __m512 sum = _mm512_loadu_ps(software_tiles[c][m]);
    for (int k = 0; k < kTileRows; ++k) {
      int32_t pair;
      std::memcpy(&pair, &software_tiles[a][m][k], sizeof pair);
      const __m512i row = _mm512_loadu_si512(software_tiles[b][k]);
      sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)row);
    }
    _mm512_storeu_ps(software_tiles[c][m], sum);
  }
}

}  // namespace mtl4::cpu::MTL4_ISA

// The compiler's own are macros as well, since a tile is named by its number in the text.
#undef _tile_loadconfig
#undef _tile_release
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) static_cast<void>(config)
#define _tile_release() static_cast<void>(0)
#define _tile_loadd(tile, from, stride) load_tile(tile, from, stride)
#define _tile_stored(tile, to, stride) store_tile(tile, to, stride)
#define _tile_zero(tile) clear_tile(tile)
#define _tile_dpbf16ps(c, a, b) multiply_tiles(c, a, b)
