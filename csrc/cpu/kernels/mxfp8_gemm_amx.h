// The tile of mxfp8_gemm.h on AMX: bf16 in, float accumulation.
//
// An e4m3 element times its scale is a bf16 exactly, as long as the exponent is in bf16's range; rows of the weight
// where it is not are left to the exact kernel. A half is the sum of two bf16 exactly, and is multiplied as such. AMX
// takes subnormal inputs and results for 0, as bf16 matrix products by AMX do everywhere.
#pragma once

#if defined(__AMX_BF16__)

#include "cpu/kernels/amx.h"
#include "cpu/kernels/mxfp8_gemm.h"

namespace mtl4::cpu::MTL4_ISA {

// kTiles tiles of 16 rows of x against two tiles of 16 rows of the weight; kPlanes bf16 per element of x.
template <int kTiles, int kPlanes>
struct AmxTile {
  using Element = uint16_t;
  static constexpr int kRows = 32;
  static constexpr int64_t kColumns = 16 * kTiles, kPerColumn = kColumns * kPlanes;
  static constexpr int64_t kGroup = 64;  // elements of k: two steps of 32, first the even ones and then the odd ones
  static constexpr int64_t kDepth = 2048, kShallow = 512;
  static constexpr int64_t kTile = 16 * 32;                                      // elements of one tile
  static int64_t stride(int64_t depth) { return round_up(depth, kGroup) + 32; }  // a cache line more: other cache sets

  using Session = AmxTiles;

  // Group by group: planes, even and odd step, tiles; a tile is [16 pairs of k][16 rows of x][2].
  template <typename T>
  static void pack(const T* x, int64_t rows, int64_t k, uint16_t* out) {
    for (int64_t i = 0; i < k; i += kGroup, out += kGroup * kPerColumn)
      for (int t = 0; t < kTiles; ++t) {
        vf even[kPlanes][16], odd[kPlanes][16];
        for (int m = 0; m < 16; ++m) {
          alignas(64) uint16_t planes[kPlanes][kGroup] = {};
          if (16 * t + m < rows) split(x + (16 * t + m) * k + i, smaller(kGroup, k - i), planes);
          for (int q = 0; q < kPlanes; ++q) {
            const __m512i low = _mm512_load_si512(planes[q]), high = _mm512_load_si512(planes[q] + 32);
            const auto narrow16 = [](__m512i v) { return _mm512_cvtepi32_epi16(v); };
            even[q][m] = bits_as<vf>(_mm512_inserti64x4(_mm512_castsi256_si512(narrow16(low)), narrow16(high), 1));
            odd[q][m] = bits_as<vf>(_mm512_inserti64x4(_mm512_castsi256_si512(narrow16(_mm512_srli_epi32(low, 16))),
                                                       narrow16(_mm512_srli_epi32(high, 16)), 1));
          }
        }
        for (int q = 0; q < kPlanes; ++q) {
          transpose(even[q]);
          transpose(odd[q]);
          uint16_t* tile = out + (2 * q * kTiles + t) * kTile;
          for (int r = 0; r < 16; ++r) {
            _mm512_storeu_ps(tile + r * 32, even[q][r]);
            _mm512_storeu_ps(tile + kTiles * kTile + r * 32, odd[q][r]);
          }
        }
      }
  }

  static void split(const bf16* x, int64_t n, uint16_t (&planes)[kPlanes][kGroup]) {
    std::memcpy(planes[0], x, n * sizeof(bf16));
  }
  static void split(const fp16* x, int64_t n, uint16_t (&planes)[kPlanes][kGroup]) {
    for (int64_t i = 0; i < n; i += kLanes) {
      const vf value = load_first(x + i, n - i);
      const vu16 high = to_bf16(value);
      const vf rest = value - bits_as<vf>(widen(high) << 16);
      const vu16 low =
          to_bf16(select(abs(value) < __builtin_inff(), rest, vf{}));  // nothing is left of infinity and NaN
      std::memcpy(planes[0] + i, &high, sizeof high);
      std::memcpy(planes[kPlanes - 1] + i, &low, sizeof low);
    }
  }

  // A row of the weight, zeros to the end of its last group. False if bf16 cannot hold some of it, or it holds a NaN.
  static bool decode(const uint8_t* codes, const uint8_t* scale, int64_t k, uint16_t* out) {
    bool plain = true;
    for (int64_t i = 0; i < k; i += kMxBlock) {
      const uint8_t s = scale[i / kMxBlock];
      if (s >= kLeastScale && s <= kMostScale) continue;
      plain = plain && s != kE8m0Nan && all_zero(codes + i, smaller(kMxBlock, k - i));
    }
    const __m512i tables[4] = {table(0, 0), table(0, 1), table(1, 0), table(1, 1)};
    __m512i seen = _mm512_setzero_si512();
    int64_t i = 0;
    for (; i + kGroup <= k; i += kGroup) {
      __builtin_prefetch(codes + i + 1024);
      decode_group(_mm512_loadu_si512(codes + i), scale[i / kMxBlock], scale[i / kMxBlock + 1], tables, seen, out + i);
    }
    if (i < k) {
      const __mmask64 mask = ~uint64_t{0} >> (kGroup - (k - i));
      const uint8_t second = k - i > kMxBlock ? scale[i / kMxBlock + 1] : kMostScale;
      decode_group(_mm512_maskz_loadu_epi8(mask, codes + i), scale[i / kMxBlock], second, tables, seen, out + i);
    }
    return plain && _mm512_cmpeq_epi8_mask(seen, _mm512_set1_epi8(kE4m3Nan)) == 0;
  }

  static void multiply(const uint16_t* weight, int64_t stride, const uint16_t* x, int64_t k, float* tile, bool add) {
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

 private:
  // With these scales every e4m3 value but 0 is a normal bf16.
  static constexpr uint8_t kLeastScale = 10, kMostScale = 237;

  // bf16 of e4m3's 128 magnitudes, with 110 added to the exponent: subtracting (237 - scale) from it, with unsigned
  // saturation, applies the scale and leaves 0 at 0.
  static constexpr uint16_t raised(int code) {
    if (code == 0) return 0;
    int exponent = code >> 3, mantissa = code & 7;
    if (exponent == 0) {
      for (exponent = 1; mantissa < 8; mantissa <<= 1) --exponent;
      mantissa &= 7;
    }
    return static_cast<uint16_t>((exponent + 120 + 110) << 7 | mantissa << 4);
  }

  // Low (byte 0) or high bytes of the first or second 64 codes.
  static __m512i table(int byte, int half) {
    struct Tables {
      alignas(64) uint8_t bytes[2][128];
    };
    static constexpr Tables kTables = [] {
      Tables t{};
      for (int code = 0; code < 128; ++code) {
        const uint16_t value = raised(code);
        t.bytes[0][code] = static_cast<uint8_t>(value & 0xff);
        t.bytes[1][code] = static_cast<uint8_t>(value >> 8);
      }
      return t;
    }();
    return _mm512_load_si512(kTables.bytes[byte] + 64 * half);
  }

  static MTL4_INLINE void decode_group(__m512i codes, uint8_t first, uint8_t second, const __m512i (&tables)[4],
                                       __m512i& seen, uint16_t* out) {
    const __m512i low = _mm512_permutex2var_epi8(tables[0], codes, tables[1]);
    const __m512i high = _mm512_permutex2var_epi8(tables[2], codes, tables[3]);
    seen = _mm512_max_epu8(seen, _mm512_and_si512(codes, _mm512_set1_epi8(0x7f)));
    const auto lowered = [](uint8_t s) { return (kMostScale - smaller(s, kMostScale)) << 7; };
    const __m512i by =
        _mm512_permutexvar_epi16(_mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(1), 1),
                                 _mm512_set1_epi32(static_cast<int>(lowered(first) | lowered(second) << 16)));
    constexpr int kSelect = 0xca;  // bits of the second operand where the first is set, of the third elsewhere
    const __m512i low_byte = _mm512_set1_epi16(0x00ff), sign = _mm512_set1_epi16(static_cast<int16_t>(0x8000));
    const __m512i even = _mm512_ternarylogic_epi32(low_byte, low, _mm512_slli_epi16(high, 8), kSelect);
    const __m512i odd = _mm512_ternarylogic_epi32(low_byte, _mm512_srli_epi16(low, 8), high, kSelect);
    _mm512_storeu_si512(
        out, _mm512_ternarylogic_epi32(sign, _mm512_slli_epi16(codes, 8), _mm512_subs_epu16(even, by), kSelect));
    _mm512_storeu_si512(out + 32, _mm512_ternarylogic_epi32(sign, codes, _mm512_subs_epu16(odd, by), kSelect));
  }
};

}  // namespace mtl4::cpu::MTL4_ISA

#endif
