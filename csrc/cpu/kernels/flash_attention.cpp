#include "cpu/kernels/flash_attention.h"

#include "cpu/kernels/dtype.h"
#include "cpu/kernels/flash_attention_amx.h"
#include "cpu/kernels/flash_attention_dpbf16.h"
#include "cpu/kernels/flash_attention_fma.h"
#include "cpu/kernels/flash_attention_softmax.h"
#include "cpu/kernels/flash_attention_unpacked.h"
#include "cpu/kernels/flash_attention_visible.h"

namespace mtl4::cpu::MTL4_ISA {
namespace {

// What a worker holds beside the inputs and results; nothing of it grows with Lk.
template <typename Products>
struct Scratch {
  float *keys, *values, *query, *out, *scores[2], *logits, *bias, *copy, *max, *sum, *decay;
  Interval* seen;
  uint8_t* marks;
  int64_t floats = 0;

  Scratch(const Products& products, const FlashAttentionSchedule& s, float* memory) {
    const auto take = [&](int64_t n) {
      float* part = memory == nullptr ? nullptr : memory + floats;
      floats += (n + 15) / 16 * 16;
      return part;
    };
    keys = take(products.key_floats());
    values = take(products.value_floats());
    query = take(products.query_floats(s.rows_per_task));
    out = take(s.rows_per_task * padded(products.v_head_dim));
    for (float*& buffer : scores) buffer = take(kBQ * kBK);
    logits = take(kBQ * kBK);
    bias = take(kBK);
    copy = take(kLanes * kMaxHeadDim);
    max = take(s.rows_per_task);
    sum = take(s.rows_per_task);
    decay = take(s.rows_per_task);
    seen = reinterpret_cast<Interval*>(take(s.rows_per_task * sizeof(Interval) / sizeof(float)));
    marks = reinterpret_cast<uint8_t*>(take(kBK / sizeof(float)));
  }
};

// Where row r of a group lies.
struct Row {
  int64_t b, head, i;
};
Row row_of(const FlashAttentionProblem& p, const FlashAttentionSchedule& s, int64_t group, int64_t r) {
  const int64_t head = group * s.fold + r / p.q_len;
  return {head / p.heads, head % p.heads, r % p.q_len};
}

int64_t at(const std::array<int64_t, 4>& stride, int64_t a, int64_t b, int64_t c) {
  return a * stride[0] + b * stride[1] + c * stride[2];
}

// Divides by the sum, in which the sink takes part.
//
// The row goes by reference: as a copy it would be read back wider than it was written, which waits for all stores
// before it, those of the last row's results among them.
template <typename T>
void finish_row(const FlashAttentionProblem& p, const FlashAttentionPointers& ptr, const Logits& f, const Row& row,
                float max, float sum, const float* acc) {
  max = f.to_natural_log(max);
  float top = max, decay = 1;
  const float sink = ptr.sinks == nullptr ? -kInf : ptr.sinks[row.head * p.sinks_stride];
  if (sink != -kInf) {
    top = max > sink ? max : sink;
    decay = __builtin_expf(max - top);
    sum = sum * decay + __builtin_expf(sink - top);
  }
  T* out = static_cast<T*>(ptr.out) + at(p.out_stride, row.b, row.head, row.i);
  const bool nothing = sum == 0;
  for (int64_t d = 0; d < p.v_head_dim; d += kLanes)
    store_first(out + d, nothing ? vf{} : load(acc + d) * decay / sum, p.v_head_dim - d);
  const float lse = nothing ? -kInf : max == kInf ? kInf : top + __builtin_logf(sum);
  ptr.lse[(row.b * p.heads + row.head) * p.q_len + row.i] = lse;
}

template <typename T, typename Products>
class Task {
 public:
  Task(const FlashAttentionProblem& p_, const FlashAttentionPointers& ptr_, const FlashAttentionSchedule& s_,
       const Products& products_, int64_t task, float* memory, float* partials_)
      : p(p_), ptr(ptr_), s(s_), f(p_, ptr_), products(products_), scratch(products, s_, memory), partials(partials_) {
    // Under a causal mask the last rows have the most to do; they come first so that no worker is left alone with them.
    first_row = (s.row_blocks - 1 - task % s.row_blocks) * s.rows_per_task;
    split = task / s.row_blocks % s.splits;
    group = task / s.row_blocks / s.splits;
    rows = smaller(s.rows_per_task, s.rows - first_row);
    const Row row = row_of(p, s, group, 0);
    const int64_t kv_head = row.head / (p.heads / p.kv_heads);
    keys = static_cast<const T*>(ptr.key) + at(p.k_stride, row.b, kv_head, 0);
    values = static_cast<const T*>(ptr.value) + at(p.v_stride, row.b, kv_head, 0);
  }

  void run() {
    [[maybe_unused]] const typename Products::Session session;
    begin_rows();
    KeyRange keys_seen{split * s.keys_per_split, smaller((split + 1) * s.keys_per_split, p.kv_len)};
    keys_seen = narrow_to_rows(keys_seen);
    for (int64_t j = keys_seen.lo / kBK * kBK; j < keys_seen.hi; j += kBK) tile(j);
    end_rows();
  }

 private:
  using Work = typename Products::Work;
  using Weight = typename Products::Weight;

  static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

  void begin_rows() {
    const int64_t v_stride = padded(p.v_head_dim);
    const int64_t padded_rows = (rows + kBQ - 1) / kBQ * kBQ;
    __builtin_memset(scratch.query, 0, products.query_floats(padded_rows) * sizeof(float));
    __builtin_memset(scratch.out, 0, padded_rows * v_stride * sizeof(float));
    __builtin_memset(scratch.bias, 0, kBK * sizeof(float));
    for (int64_t r = 0; r < padded_rows; ++r) scratch.max[r] = -kInf, scratch.sum[r] = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const Row row = row_of(p, s, group, first_row + r);
      products.pack_query(static_cast<const T*>(ptr.query) + at(p.q_stride, row.b, row.head, row.i), p.q_stride[3],
                          scratch.copy, packed_query(r));
    }
  }

  KeyRange narrow_to_rows(KeyRange in) const {
    KeyRange any{in.hi, in.lo};
    for (int64_t r = 0; r < rows; ++r) {
      const KeyRange seen = key_range(p, (first_row + r) % p.q_len);
      if (seen.lo < any.lo) any.lo = seen.lo;
      if (seen.hi > any.hi) any.hi = seen.hi;
    }
    return {any.lo > in.lo ? any.lo : in.lo, smaller(any.hi, in.hi)};
  }

  int64_t mask_at(Row row, int64_t j) const { return at(p.mask_stride, row.b, row.head, row.i) + j * p.mask_stride[3]; }

  // Fills in what the rows from `first` on see of the tile at key j; returns what any of them sees.
  Interval look(int64_t first, int64_t count, int64_t j) {
    const int width = static_cast<int>(smaller(kBK, p.kv_len - j));
    Interval any{width, 0, false};
    int64_t last_at = -1;
    Interval last_in{}, last_out{};
    for (int64_t r = first; r < first + count; ++r) {
      const Row row = row_of(p, s, group, first_row + r);
      const KeyRange range = key_range(p, row.i);
      Interval seen{range.lo > j ? static_cast<int>(smaller(range.lo - j, width)) : 0,
                    range.hi > j ? static_cast<int>(smaller(range.hi - j, width)) : 0, false};
      if (ptr.mask != nullptr && seen.lo < seen.hi) {
        const int64_t where = mask_at(row, j);
        const bool same = r > first && where == last_at && seen.lo == last_in.lo && seen.hi == last_in.hi;
        last_in = seen, last_at = where;
        seen = last_out = same ? last_out : narrow(p, ptr.mask, where, seen, scratch.bias);
      }
      if (seen.lo >= seen.hi) {
        seen = {width, width, false};
      } else {
        if (seen.lo < any.lo) any.lo = seen.lo;
        if (seen.hi > any.hi) any.hi = seen.hi;
        any.biased |= seen.biased;
      }
      scratch.seen[r] = seen;
    }
    return any;
  }

  struct Block {
    int64_t first;  // row of the task
    int rows, lo, hi;
  };

  void tile(int64_t j) {
    Block blocks[kMaxRowsPerTask / kBQ];
    int count = 0;
    Interval all{static_cast<int>(kBK), 0, false};
    for (int64_t r = 0; r < rows; r += kBQ) {
      const int block_rows = static_cast<int>(smaller(kBQ, rows - r));
      const Interval seen = look(r, block_rows, j);
      if (seen.lo >= seen.hi) continue;
      blocks[count++] = {r, block_rows, seen.lo / 32 * 32, (seen.hi + 31) / 32 * 32};
      if (seen.lo < all.lo) all.lo = seen.lo;
      if (seen.hi > all.hi) all.hi = seen.hi;
    }
    if (count == 0) return;
    tile_keys = products.pack_keys(keys + j * p.k_stride[2], p.k_stride[2], p.k_stride[3], all.lo, all.hi, scratch.copy,
                                   scratch.keys);
    used_next(tile_keys, values + j * p.v_stride[2], p.v_stride[2]);
    Work with_keys = scores(blocks[0], 0), with_values{};
    finish(with_keys);
    tile_values = products.pack_values(values + j * p.v_stride[2], p.v_stride[2], p.v_stride[3], all.lo, all.hi,
                                       scratch.copy, scratch.marks, &marked, scratch.values);
    used_next(tile_values, keys + (j + kBK) * p.k_stride[2], p.k_stride[2]);

    // While a block goes through its softmax, the one before it meets the values and the one after it the keys.
    for (int n = 0; n < count; ++n) {
      const Block& block = blocks[n];
      logits(block, j, n % 2);
      if (marked) __builtin_memcpy(scratch.logits, scratch.scores[n % 2], kBQ * kBK * sizeof(float));
      if (n + 1 < count) with_keys = scores(blocks[n + 1], (n + 1) % 2);
      const int pieces = (with_values.left() + with_keys.left() + block.rows - 1) / block.rows;
      const auto advance = [&] {
        for (int i = 0; i < pieces; ++i) {
          if (with_values.left() > 0) {
            products.advance(with_values);
          } else if (with_keys.left() > 0) {
            products.advance(with_keys);
          }
        }
      };
      const RowState state{scratch.max + block.first, scratch.sum + block.first, scratch.decay + block.first};
      if (softmax_tile<Weight>(f, scratch.scores[n % 2], block.rows, block.lo, block.hi, state, advance))
        rescale(block);
      finish(with_values);
      finish(with_keys);
      with_values =
          products.accumulate(reinterpret_cast<Weight*>(scratch.scores[n % 2]), tile_values, block.rows, block.lo,
                              block.hi, scratch.out + block.first * padded(p.v_head_dim), padded(p.v_head_dim));
      if (marked) {
        finish(with_values);
        for (int r = 0; r < block.rows; ++r) add_not_finite(block.first + r, scratch.logits + r * kBK, j);
      }
    }
    finish(with_values);
  }

  // Tells products that read rows where they lie which they will read after these.
  template <typename Rows>
  static void used_next(Rows& rows, const T* first, int64_t stride) {
    if constexpr (requires { rows.next; }) rows.next = first, rows.next_stride = stride;
  }

  typename Products::Packed* packed_query(int64_t row) const {
    return reinterpret_cast<typename Products::Packed*>(scratch.query) + row * products.query_stride();
  }

  Work scores(const Block& block, int buffer) const {
    return products.scores(packed_query(block.first), tile_keys, block.rows, block.lo, block.hi,
                           scratch.scores[buffer]);
  }

  void finish(Work& work) const {
    while (work.left() > 0) products.advance(work);
  }

  void rescale(const Block& block) {
    const int64_t v_stride = padded(p.v_head_dim);
    for (int64_t r = block.first; r < block.first + block.rows; ++r) {
      float* out = scratch.out + r * v_stride;
      if (scratch.decay[r] == 1) continue;
      for (int64_t d = 0; d < v_stride; d += kLanes) store(out + d, load(out + d) * scratch.decay[r]);
    }
  }

  void logits(const Block& block, int64_t j, int buffer) {
    int64_t last_at = -1;
    Interval last{};
    for (int r = 0; r < block.rows; ++r) {
      float* row_scores = scratch.scores[buffer] + r * kBK;
      const Interval seen = scratch.seen[block.first + r];
      if (f.natural || seen.biased) {
        const Row row = row_of(p, s, group, first_row + block.first + r);
        if (seen.biased) {
          const int64_t where = mask_at(row, j + seen.lo);
          if (where != last_at || seen.lo != last.lo || seen.hi != last.hi)
            load_bias(p, ptr.mask, where, seen.hi - seen.lo, scratch.bias + seen.lo);
          last_at = where, last = seen;
        }
        const float slope = ptr.alibi_slopes == nullptr
                                ? 0.0f
                                : ptr.alibi_slopes[row.b * p.alibi_stride[0] + row.head * p.alibi_stride[1]];
        form_logits(f, slope, static_cast<float>(row.i + p.diagonal - j), seen.biased ? scratch.bias : nullptr,
                    block.lo, block.hi, row_scores);
      }
      hide_outside(row_scores, seen, block.lo, block.hi);
    }
  }

  // Packed values hold 0 in place of an infinity or NaN, which a weight of 0 would turn into NaN for rows that do not
  // see it; here the rows that do see it get it.
  void add_not_finite(int64_t r, const float* row_logits, int64_t j) {
    float* out = scratch.out + r * padded(p.v_head_dim);
    for (int k = scratch.seen[r].lo; k < scratch.seen[r].hi; ++k) {
      if (!scratch.marks[k] || row_logits[k] == -kInf) continue;
      const float x =
          f.natural ? (row_logits[k] - scratch.max[r]) * f.exponent : row_logits[k] * f.exponent - scratch.max[r];
      const float weight = __builtin_exp2f(x);
      const T* value = values + (j + k) * p.v_stride[2];
      for (int64_t d = 0; d < p.v_head_dim; ++d) {
        const float v = to_float(value[d * p.v_stride[3]]);
        if (v - v != 0) out[d] += weight * v;
      }
    }
  }

  void end_rows() {
    const int64_t v_stride = padded(p.v_head_dim);
    for (int64_t r = 0; r < rows; ++r) {
      const float* acc = scratch.out + r * v_stride;
      if (s.splits == 1) {
        finish_row<T>(p, ptr, f, row_of(p, s, group, first_row + r), scratch.max[r], scratch.sum[r], acc);
      } else {
        float* to = partials + ((group * s.rows + first_row + r) * s.splits + split) * s.partial_row;
        __builtin_memcpy(to, acc, v_stride * sizeof(float));
        to[v_stride] = scratch.max[r], to[v_stride + 1] = scratch.sum[r];
      }
    }
  }

  const FlashAttentionProblem& p;
  const FlashAttentionPointers& ptr;
  const FlashAttentionSchedule& s;
  const Logits f;
  const Products products;
  const Scratch<Products> scratch;
  float* const partials;
  int64_t group, split, first_row, rows;
  const T *keys, *values;
  typename Products::Keys tile_keys;
  typename Products::Values tile_values;
  bool marked = false;  // whether tile_values lacks elements that are not finite
};

template <typename T>
void merge(const FlashAttentionProblem& p, const FlashAttentionPointers& ptr, const FlashAttentionSchedule& s,
           int64_t row, float* partials) {
  const Logits f(p, ptr);
  const int64_t v_stride = padded(p.v_head_dim);
  float* first = partials + row * s.splits * s.partial_row;
  float max = -kInf, sum = 0;
  for (int64_t n = 0; n < s.splits; ++n) {
    const float m = first[n * s.partial_row + v_stride];
    max = max > m ? max : m;
  }
  const float from = max == -kInf ? 0.0f : max;
  for (int64_t n = 0; n < s.splits; ++n) {
    const float* part = first + n * s.partial_row;
    const float x = part[v_stride] - from;
    const float weight = exp2(splat(f.natural ? x * kLog2e : x))[0];
    sum += part[v_stride + 1] * weight;
    for (int64_t d = 0; d < v_stride; d += kLanes)
      store(first + d, n == 0 ? load(part + d) * weight : fma(load(part + d), splat(weight), load(first + d)));
  }
  finish_row<T>(p, ptr, f, row_of(p, s, row / s.rows, row % s.rows), max, sum, first);
}

// Calls call(T{}, products) with the element type of the problem and the products that suit it.
template <typename F>
void with_products(const FlashAttentionProblem& p, const FlashAttentionSchedule& s, const F& call) {
  if (s.unpacked)
    return by_dtype(p.dtype,
                    [&](auto type) { call(type, UnpackedProducts<decltype(type)>{p.head_dim, p.v_head_dim}); });
#if defined(MTL4_AMX)
  using PairProducts = AmxProducts;
#elif defined(__AVX512BF16__)
  using PairProducts = Dpbf16Products;
#endif
#if defined(__AVX512BF16__)
  if (p.dtype == torch::headeronly::ScalarType::BFloat16) return call(bf16{}, PairProducts{{p.head_dim, p.v_head_dim}});
#endif
  by_dtype(p.dtype, [&](auto type) { call(type, FmaProducts<decltype(type)>{{p.head_dim, p.v_head_dim}}); });
}

}  // namespace

void flash_attention_scratch(const FlashAttentionProblem& p, const FlashAttentionSchedule& s, int64_t* floats) {
  with_products(p, s, [&](auto, auto products) { *floats = Scratch<decltype(products)>(products, s, nullptr).floats; });
}

void flash_attention(const FlashAttentionProblem& p, const FlashAttentionPointers& ptr, const FlashAttentionSchedule& s,
                     int64_t task, float* scratch, float* partials) {
  with_products(p, s, [&](auto type, auto products) {
    Task<decltype(type), decltype(products)>(p, ptr, s, products, task, scratch, partials).run();
  });
}

void flash_attention_merge(const FlashAttentionProblem& p, const FlashAttentionPointers& ptr,
                           const FlashAttentionSchedule& s, int64_t row, float* partials) {
  by_dtype(p.dtype, [&](auto type) { merge<decltype(type)>(p, ptr, s, row, partials); });
}

}  // namespace mtl4::cpu::MTL4_ISA
