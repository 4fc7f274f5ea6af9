// The two products of attention for few query rows: keys and values are read where they lie, once for all rows.
//
// With few rows the bytes of keys and values take longer than the products, and packing them would only add to it.
#pragma once

#include "cpu/kernels/flash_attention_fma.h"
#include "cpu/kernels/flash_attention_pairs.h"

namespace mtl4::cpu::MTL4_ISA {

// What a register of elements of type T is, and how it is multiplied.
template <typename T>
struct RowWords {
  using Query = float;
  using Weight = float;
  using Elements = vf;
  static constexpr int kElements = kLanes;
  static constexpr int kKeys = 1;  // keys that a step of the sum over keys takes, in as many registers

  static void pack_query(const T* q, int64_t n, float* to) {
    for (int64_t d = 0; d < n; d += kLanes) store(to + d, load_first(q + d, n - d));
  }
  template <typename U>
  static vf load_some(const U* p, int64_t n) {
    return load_first(p, n);
  }
  static vf dot(vf sum, vf a, vf b) { return fma(a, b, sum); }
  static vf weight(const float* w) { return splat(*w); }
  static void interleave(vf (&)[1]) {}
};

#if defined(__AVX512BF16__)
template <>
struct RowWords<bf16> {
  using Query = bf16;
  using Weight = bf16;
  using Elements = __m512bh;
  static constexpr int kElements = 32;
  static constexpr int kKeys = 2;

  static void pack_query(const bf16* q, int64_t n, bf16* to) {
    for (int64_t d = 0; d < n; d += 32) _mm512_storeu_si512(to + d, load32(q, d, n));
  }
  static __m512bh load_some(const bf16* p, int64_t n) { return bits_as<__m512bh>(load32(p, 0, n)); }
  static vf dot(vf sum, __m512bh a, __m512bh b) { return _mm512_dpbf16_ps(sum, a, b); }
  static __m512bh weight(const bf16* w) { return bits_as<__m512bh>(splat(load_as<int32_t>(w))); }
  static void interleave(__m512bh (&x)[2]) {
    const __m512i a = bits_as<__m512i>(x[0]), b = bits_as<__m512i>(x[1]);
    x[0] = bits_as<__m512bh>(mtl4::cpu::MTL4_ISA::interleave<0>(a, b));
    x[1] = bits_as<__m512bh>(mtl4::cpu::MTL4_ISA::interleave<16>(a, b));
  }
};
#endif

// Sums held in registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kSums = 16;
#else
constexpr int kSums = 8;
#endif

// Calls f(Count<n>, first) for blocks of N, N / 2, ... 1.
template <int N, typename F>
MTL4_INLINE void for_halving_blocks(int first, int end, const F& f) {
  for (; first + N <= end; first += N) f(Count<N>{}, first);
  if constexpr (N > 1)
    if (first < end) for_halving_blocks<N / 2>(first, end, f);
}

template <typename T>
struct UnpackedProducts {
  using Words = RowWords<T>;
  using Packed = typename Words::Query;
  using Weight = typename Words::Weight;
  using Elements = typename Words::Elements;
  using Work = DoneWork;
  struct Session {};
  static constexpr int kElements = Words::kElements, kKeys = Words::kKeys;

  // The keys [lo, hi) of a tile. Others are not read: one of these stands in for them, and nobody sees its score.
  struct Rows {
    const T* first;
    int64_t stride;
    int lo, hi;

    const T* at(int j) const { return first + (j < lo ? lo : j < hi ? j : hi - 1) * stride; }
  };
  // Keys further on, a register's worth at a time in the order of their addresses: in the turns that the rows of a
  // block take, the hardware sees no order to go by.
  struct Ahead {
    const T* row;
    int64_t d = 0;

    MTL4_INLINE void prefetch(int64_t stride, int64_t n) {
      __builtin_prefetch(row + d, 0, 2);
      d += kElements;
      row += d < n ? 0 : stride;
      d = d < n ? d : 0;
    }
  };
  // With the rows that are used next, which are fetched into the second cache while these are used.
  struct Keys : Rows {
    const T* next = nullptr;
    int64_t next_stride = 0;
  };
  using Values = Keys;

  int64_t head_dim, v_head_dim;

  int64_t query_stride() const { return padded(head_dim); }
  int64_t query_floats(int64_t rows) const { return rows * padded(head_dim) * sizeof(Packed) / sizeof(float); }
  int64_t key_floats() const { return kBK * padded(head_dim) * sizeof(T) / sizeof(float); }
  int64_t value_floats() const { return kBK * padded(v_head_dim) * sizeof(T) / sizeof(float); }

  void pack_query(const T* row, int64_t stride, float* copy, Packed* to) const {
    Words::pack_query(dense_row(row, stride, head_dim, copy), head_dim, to);
  }

  Keys pack_keys(const T* keys, int64_t key_stride, int64_t stride, int lo, int hi, float*, float* memory) const {
    const Rows rows = rows_of(keys, key_stride, lo, hi);
    return {stride == 1 ? rows : gathered(rows, stride, head_dim, reinterpret_cast<T*>(memory))};
  }

  Values pack_values(const T* values, int64_t key_stride, int64_t stride, int lo, int hi, float*, uint8_t* marks,
                     bool* marked, float* memory) const {
    T* to = reinterpret_cast<T*>(memory);
    Rows rows = rows_of(values, key_stride, lo, hi);
    if (stride != 1) rows = gathered(rows, stride, v_head_dim, to);
    *marked = !all_finite(rows);
    return {*marked ? cleaned(rows, marks, to) : rows};
  }

  static void advance(Work&) {}

  Work scores(const Packed* q, const Keys& keys, int rows, int, int, float* s) const {
    Ahead ahead{keys.next};
    for (int j = keys.lo / kSums * kSums; j < keys.hi; j += kSums)
      for_halving_blocks<4>(0, rows, [&](auto count, int r) {
        constexpr int kCount = decltype(count)::value;
        for (int k = j; k < j + kSums; k += kSums / kCount)
          score_block<kCount>(q + r * query_stride(), keys, k, s + r * kBK + k, r == 0 ? &ahead : nullptr);
      });
    return {};
  }

  Work accumulate(const Weight* weights, const Values& values, int rows, int, int, float* out,
                  int64_t out_stride) const {
    constexpr int kKeysAtOnce = 32;  // their values stay in the first cache from one block to the next
    const int full = static_cast<int>(v_head_dim / kElements);
    Ahead ahead{values.next};
    for (int begin = values.lo / kKeys * kKeys; begin < values.hi; begin += kKeysAtOnce) {
      const int end = begin + kKeysAtOnce < values.hi ? begin + kKeysAtOnce : values.hi;
      for_halving_blocks<4>(0, rows, [&](auto count, int r) {
        constexpr int kCount = decltype(count)::value;
        const Weight* w = weights + r * kBK * static_cast<int64_t>(sizeof(float) / sizeof(Weight));
        float* to = out + r * out_stride;
        for_halving_blocks<kSums / kCount / kKeys>(0, full, [&](auto width, int c) {
          add_block<kCount, decltype(width)::value>(w, values, begin, end, c * kElements, kElements, to, out_stride,
                                                    r == 0 ? &ahead : nullptr);
        });
        if (const int64_t left = v_head_dim - full * kElements; left > 0)
          add_block<kCount, 1>(w, values, begin, end, full * kElements, left, to, out_stride, nullptr);
      });
    }
    return {};
  }

 private:
  // The stride of a single key may be any number.
  static Rows rows_of(const T* first, int64_t stride, int lo, int hi) {
    return hi - lo > 1 ? Rows{first, stride, lo, hi} : Rows{first + lo * stride, 0, lo, hi};
  }

  // s [kCount, kBK] at kSums / kCount keys from j on.
  template <int kCount>
  MTL4_INLINE void score_block(const Packed* q, const Keys& keys, int j, float* s, Ahead* ahead) const {
    constexpr int kEach = kSums / kCount, kAtOnce = kEach < 8 ? kEach : 8;  // more would need too many addresses
    vf sum[kSums] = {};
#pragma GCC unroll 2
    for (int part = 0; part < kEach; part += kAtOnce) {
      const T* key[kAtOnce];
      for (int k = 0; k < kAtOnce; ++k) key[k] = keys.at(j + part + k);
      const auto step = [&](int64_t d, int64_t n) __attribute__((always_inline)) {
        Elements x[kCount];
#pragma GCC unroll 4
        for (int i = 0; i < kCount; ++i) x[i] = Words::load_some(q + i * query_stride() + d, kElements);
#pragma GCC unroll 8
        for (int k = 0; k < kAtOnce; ++k) {
          const Elements y = Words::load_some(key[k] + d, n);
          if (ahead != nullptr) ahead->prefetch(keys.next_stride, v_head_dim);
#pragma GCC unroll 4
          for (int i = 0; i < kCount; ++i) sum[i * kEach + part + k] = Words::dot(sum[i * kEach + part + k], x[i], y);
        }
      };
      int64_t d = 0;
      for (; d + kElements <= head_dim; d += kElements) step(d, kElements);
      if (d < head_dim) step(d, head_dim - d);
    }
    float total[kSums];
    for (int i = 0; i < kSums; i += kLanes) store(total + i, reduce_add_each(sum + i));
    for (int i = 0; i < kCount; ++i) std::memcpy(s + i * kBK, total + i * kEach, kEach * sizeof(float));
  }

  // out [kCount, kWidth * kElements] at column c += weights * values [begin, end), of which n <= kElements columns of
  // the last register exist.
  template <int kCount, int kWidth>
  MTL4_INLINE void add_block(const Weight* weights, const Values& values, int begin, int end, int64_t c, int64_t n,
                             float* out, int64_t out_stride, Ahead* ahead) const {
    constexpr int kVectors = kWidth * kKeys;
    constexpr int64_t kWeightStride = kBK * sizeof(float) / sizeof(Weight);
    vf sum[kCount][kVectors];
    for (int i = 0; i < kCount; ++i)
      for (int v = 0; v < kVectors; ++v) sum[i][v] = load(out + i * out_stride + c + v * kLanes);
    for (int j = begin; j < end; j += kKeys) {
      const T* row[kKeys];
      for (int k = 0; k < kKeys; ++k) row[k] = values.at(j + k) + c;
      if (ahead != nullptr)
        for (int v = 0; v < kWidth * kKeys; ++v) ahead->prefetch(values.next_stride, head_dim);
      Elements w[kCount];
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) w[i] = Words::weight(weights + i * kWeightStride + j);
#pragma GCC unroll 16
      for (int v = 0; v < kWidth; ++v) {
        Elements x[kKeys];
        for (int k = 0; k < kKeys; ++k) x[k] = Words::load_some(row[k] + v * kElements, n);
        Words::interleave(x);
#pragma GCC unroll 4
        for (int i = 0; i < kCount; ++i)
          for (int k = 0; k < kKeys; ++k) sum[i][v * kKeys + k] = Words::dot(sum[i][v * kKeys + k], w[i], x[k]);
      }
    }
    for (int i = 0; i < kCount; ++i)
      for (int v = 0; v < kVectors; ++v) store(out + i * out_stride + c + v * kLanes, sum[i][v]);
  }

  // 0 times what is not finite is NaN.
  bool all_finite(const Rows& values) const {
    const Elements zero{};
    vf sum[4] = {};
    for (int j = values.lo; j < values.hi; ++j) {
      const T* row = values.at(j);
      int64_t d = 0;
      for (; d + 4 * kElements <= v_head_dim; d += 4 * kElements)
        for (int i = 0; i < 4; ++i)
          sum[i] = Words::dot(sum[i], Words::load_some(row + d + i * kElements, kElements), zero);
      for (; d < v_head_dim; d += kElements)
        sum[0] = Words::dot(sum[0], Words::load_some(row + d, v_head_dim - d), zero);
    }
    const vf all = sum[0] + sum[1] + sum[2] + sum[3];
    return !any(all != 0.0f);
  }

  static Rows gathered(const Rows& rows, int64_t stride, int64_t n, T* to) {
    for (int j = rows.lo; j < rows.hi; ++j)
      for (int64_t d = 0; d < n; ++d) to[j * n + d] = rows.at(j)[d * stride];
    return {to, n, rows.lo, rows.hi};
  }

  // A copy with 0 in place of what is not finite; `values` may be the same memory.
  Rows cleaned(const Rows& values, uint8_t* marks, T* to) const {
    for (int j = values.lo; j < values.hi; ++j) {
      const T* from = values.at(j);
      marks[j] = 0;
      for (int64_t d = 0; d < v_head_dim; ++d) {
        const float x = to_float(from[d]);
        const bool finite = x - x == 0;
        to[j * v_head_dim + d] = finite ? from[d] : T{};
        marks[j] |= !finite;
      }
    }
    return {to, v_head_dim, values.lo, values.hi};
  }
};

}  // namespace mtl4::cpu::MTL4_ISA
