// Which thread of a scope owns which elements of a cooperative tensor, under each layout.
#pragma once
#include "execution.h"
namespace msl {
inline int lane_in_scope(int threads) {
  return threads == 1 ? 0 : threads == 32 ? (int)msl_lane() : (int)msl_thread_index();
}

// A tile in stored orientation. SWAP: it is used transposed, which the layout before M5 looks through.
template <int COLS, int ROWS, int THREADS, bool SWAP> struct TileLayout {
  static constexpr int rank = 2, cols = COLS, rows = ROWS, threads = THREADS;
  static constexpr int simdgroups = THREADS / 32 ? THREADS / 32 : 1;
  static constexpr bool in_16x16 = THREADS >= 32 && COLS % 16 == 0 && ROWS % 16 == 0;
  static constexpr bool in_8x8 = THREADS >= 32 && COLS % 8 == 0 && ROWS % 8 == 0;
  static constexpr int fragments16 = in_16x16 ? (COLS / 16) * (ROWS / 16) : 0;
  static constexpr int fragments8 = in_8x8 ? (COLS / 8) * (ROWS / 8) : 0;
  static constexpr int capacity16 = (fragments16 + simdgroups - 1) / simdgroups * 8;
  static constexpr int capacity8 = (fragments8 + simdgroups - 1) / simdgroups * 2;
  static constexpr int dealt_out = (COLS * ROWS + THREADS - 1) / THREADS;
  static constexpr int largest(int a, int b) { return a > b ? a : b; }
  static constexpr int capacity = largest(dealt_out, largest(capacity16, capacity8));

  static constexpr bool coord(int policy, int t, int e, int &c, int &r) {
    int lane = t & 31, simdgroup = t >> 5;
    if (policy == MSL_LAYOUT_M5 && in_16x16) {
      int f = simdgroup * (capacity16 / 8) + e / 8, i = e & 7;
      if (e >= capacity16 || f >= fragments16) return false;
      int q = lane >> 2;
      c = f % (COLS / 16) * 16 + ((q & 2) | (lane & 1)) * 4 + (i & 3);
      r = f / (COLS / 16) * 16 + ((q & 4) | ((lane >> 1) & 3)) + 8 * (i >> 2);
      return true;
    }
    if (policy != MSL_LAYOUT_SCRAMBLED && in_8x8) {
      constexpr int logical_cols = SWAP ? ROWS : COLS;
      int f = simdgroup * (capacity8 / 2) + e / 2;
      if (e >= capacity8 || f >= fragments8) return false;
      int x = f % (logical_cols / 8) * 8 + (lane >> 3 & 1) * 4 + (lane & 1) * 2 + (e & 1);
      int y = f / (logical_cols / 8) * 8 + (lane >> 4 & 1) * 4 + (lane >> 1 & 3);
      c = SWAP ? y : x;
      r = SWAP ? x : y;
      return true;
    }
    int owner = t;
    if (policy == MSL_LAYOUT_SCRAMBLED && THREADS > 1) owner = (t * 5 + e * 3) % THREADS; // 5 is odd: a permutation
    int number = e * THREADS + owner;
    if (number >= COLS * ROWS || e >= dealt_out) return false;
    c = number % COLS;
    r = number / COLS;
    return true;
  }
};

// The rows (or columns) of a tile, one element each: a thread owns those of which it owns an element in the tile.
template <class Tile, bool ROW> struct ReductionLayout {
  using source = Tile;
  static constexpr bool is_row = ROW;
  static constexpr int rank = 1, threads = Tile::threads, cols = ROW ? Tile::rows : Tile::cols, rows = 1;

  struct Table {
    short count[3][threads] = {}, element[3][threads][cols] = {}, slot[3][threads][cols] = {};
    int capacity = 0;
    constexpr Table() {
      for (int policy = 0; policy < 3; policy++)
        for (int t = 0; t < threads; t++) fill(policy, t);
    }
    constexpr void fill(int policy, int t) {
      bool owned[cols] = {};
      for (int e = 0; e < Tile::capacity; e++) {
        int x = 0, y = 0;
        if (Tile::coord(policy, t, e, x, y)) owned[ROW ? y : x] = true;
      }
      short &n = count[policy][t];
      for (int k = 0; k < cols; k++) {
        int i = policy == MSL_LAYOUT_SCRAMBLED ? cols - 1 - k : k;
        slot[policy][t][i] = owned[i] ? n : -1;
        if (owned[i]) element[policy][t][n++] = (short)i;
      }
      if (n > capacity) capacity = n;
    }
  };
  static constexpr Table table{};
  static constexpr int capacity = table.capacity;

  static constexpr bool coord(int policy, int t, int e, int &c, int &r) {
    r = 0;
    if (e >= table.count[policy][t]) return false;
    c = table.element[policy][t][e];
    return true;
  }
  static constexpr int slot_of(int policy, int t, int i) { return table.slot[policy][t][i]; }
};
} // namespace msl
