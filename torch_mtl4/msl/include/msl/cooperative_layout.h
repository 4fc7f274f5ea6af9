// Which thread of a scope owns which elements of a cooperative tensor, under each layout.
#pragma once
#include "execution.h"
namespace metal {
inline int msl_lane_in_scope(int threads) {
  return threads == 1 ? 0 : threads == 32 ? (int)msl_lane() : (int)msl_thread_index();
}
template <int COLS, int ROWS, int THREADS, bool SWAP>
struct coop_layout { // stored orientation; SWAP: operand is used transposed
  static constexpr int rank = 2, cols = COLS, rows = ROWS, threads = THREADS;
  static constexpr bool frag16 = THREADS >= 32 && COLS % 16 == 0 && ROWS % 16 == 0,
                        frag8 = THREADS >= 32 && COLS % 8 == 0 && ROWS % 8 == 0;
  static constexpr int nf16 = (COLS / 16) * (ROWS / 16), nsg = THREADS / 32 ? THREADS / 32 : 1,
                       nf8 = (COLS / 8) * (ROWS / 8);
  static constexpr int cap16 = frag16 ? ((nf16 + nsg - 1) / nsg) * 8 : 0,
                       cap8 = frag8 ? ((nf8 + nsg - 1) / nsg) * 2 : 0, caplin = (COLS * ROWS + THREADS - 1) / THREADS;
  static constexpr int capacity = cap16 > cap8 ? (cap16 > caplin ? cap16 : caplin) : (cap8 > caplin ? cap8 : caplin);
  static bool coord(int policy, int t, int e, int &c, int &r) {
    int lane = t & 31, sg = t >> 5;
    if (policy == 0 && frag16) {
      int f = sg * (cap16 / 8) + e / 8, i = e & 7;
      if (e >= cap16 || f >= nf16) return false;
      int q = lane >> 2;
      int fm = (q & 4) | ((lane >> 1) & 3), fn = ((q & 2) | (lane & 1)) * 4;
      c = f % (COLS / 16) * 16 + fn + (i & 3);
      r = f / (COLS / 16) * 16 + fm + 8 * (i >> 2);
      return true;
    }
    if (policy <= 1 && frag8) {
      constexpr int LC = SWAP ? ROWS : COLS;
      int f = sg * (cap8 / 2) + e / 2;
      if (e >= cap8 || f >= nf8) return false;
      int fm = ((lane >> 4) & 1) * 4 + ((lane >> 1) & 3), fn = ((lane >> 3) & 1) * 4 + (lane & 1) * 2;
      int lc = f % (LC / 8) * 8 + fn + (e & 1), lr = f / (LC / 8) * 8 + fm;
      c = SWAP ? lr : lc;
      r = SWAP ? lc : lr;
      return true;
    }
    int lin = e * THREADS + t;
    if (policy == 2)
      lin = e * THREADS + (THREADS > 1 ? (t * 5 + e * 3) % THREADS : 0); // 5 is odd: a permutation of the threads
    if (lin >= COLS * ROWS || e >= caplin) return false;
    c = lin % COLS;
    r = lin / COLS;
    return true;
  }
};
template <class L, bool ROWRED> struct coop_red_layout {
  using src = L;
  static constexpr int rank = 1, threads = L::threads, capacity = ROWRED ? L::rows : L::cols, cols = capacity, rows = 1;
  static bool coord(int policy, int t, int e, int &c, int &r) {
    c = e;
    r = 0;
    for (int k = 0; k < L::capacity; k++) {
      int x, y;
      if (L::coord(policy, t, k, x, y) && (ROWRED ? y : x) == e) return true;
    }
    return false;
  }
};
} // namespace metal
