// The state of AMX's eight tile registers, all of 16 rows of 64 bytes.
#pragma once

#if defined(__AMX_BF16__) || (defined(MTL4_SOFTWARE_AMX) && defined(MTL4_ISA_AMX))
#define MTL4_AMX 1

#include <immintrin.h>

#include <cstdint>

#if defined(MTL4_SOFTWARE_AMX)
#include "cpu/kernels/amx_software.h"
#endif

namespace mtl4::cpu::MTL4_ISA {

// Tiles hold data from the constructor to the destructor, which gives the registers back: a thread that keeps them
// in use makes every context switch save 8 KiB.
class AmxTiles {
 public:
  AmxTiles() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t bytes_per_row[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; ++i) config.bytes_per_row[i] = 64, config.rows[i] = 16;
    _tile_loadconfig(&config);
  }
  ~AmxTiles() { _tile_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

}  // namespace mtl4::cpu::MTL4_ISA

#endif
