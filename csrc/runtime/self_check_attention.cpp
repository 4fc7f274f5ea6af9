// Self-checks of flash_attention: rows of cooperative tensors and of simdgroup_matrix, with weights that are exact.
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/words.h"
#include "runtime/self_check_cases.h"
#include "self_check/params.h"

namespace mtl4::runtime {
namespace {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;
using torch::headeronly::ScalarType;

// -1, 0 and 1.
struct Case {
  int rows, keys, head_dim, value_dim;
  std::vector<int> query, key, value;

  Case(int rows_, int keys_, int head_dim_, int value_dim_)
      : rows(rows_), keys(keys_), head_dim(head_dim_), value_dim(value_dim_) {
    SmallNumbers numbers(3);
    const auto fill = [&](std::vector<int>& values, int size) {
      for (int i = 0; i < size; ++i) values.push_back(numbers.next(1));
    };
    fill(query, rows * head_dim), fill(key, keys * head_dim), fill(value, keys * value_dim);
  }
  static int at(const std::vector<int>& values, int i) { return values[static_cast<size_t>(i)]; }
  int product(int row, int k) const {
    int sum = 0;
    for (int d = 0; d < head_dim; ++d) sum += at(query, row * head_dim + d) * at(key, k * head_dim + d);
    return sum;
  }
};

// What the kernel computes of a row, tile after tile (metal/self_check/rows.h).
struct Row {
  float largest = -std::numeric_limits<float>::infinity(), sum = 0;
  std::vector<float> out;

  Row(const Case& c, int row, int keys_of_a_tile) : out(static_cast<size_t>(c.value_dim)) {
    for (int from = 0; from < c.keys; from += keys_of_a_tile) {
      float top = largest;
      for (int k = from; k < from + keys_of_a_tile; ++k) top = std::max(top, static_cast<float>(c.product(row, k)));
      const float decay = top > largest ? 0.5f : 1.0f;
      largest = top, sum *= decay;
      for (float& x : out) x *= decay;
      for (int k = from; k < from + keys_of_a_tile; ++k) {
        const float weight = largest - static_cast<float>(c.product(row, k));
        sum += weight;
        for (int d = 0; d < c.value_dim; ++d)
          out[static_cast<size_t>(d)] += weight * static_cast<float>(Case::at(c.value, k * c.value_dim + d));
      }
    }
  }
};

template <typename T>
Bytes as(const std::vector<int>& values) {
  std::vector<T> converted;
  for (const int value : values) converted.push_back(static_cast<T>(static_cast<float>(value)));
  return bytes_of_all(converted);
}

// One simdgroup's rows: products, largest and sum of rows, weights on to the second product, the output's tiles.
template <typename T>
SelfCheck rows_check(ScalarType dtype, bool in_memory) {
  using Sizes = SelfCheckRows;
  constexpr int kRows = 16, kKeysOfATile = 32;
  const Case c(Sizes::rows, Sizes::keys, Sizes::head_dim, Sizes::value_dim);
  // What the kernel does not write stays as it is before: NaN.
  std::vector<float> rows(2 * kRows, std::numeric_limits<float>::quiet_NaN());
  std::vector<T> out;
  for (int r = 0; r < c.rows; ++r) {
    const Row row(c, r, kKeysOfATile);
    rows[static_cast<size_t>(r)] = row.largest, rows[static_cast<size_t>(kRows + r)] = row.sum;
    const float factor = static_cast<int>(row.largest) < Sizes::doubled_from ? 1.0f : 2.0f;
    for (const float x : row.out) out.push_back(static_cast<T>(x * factor));
  }
  const std::string type = type_name(dtype);
  return {.what = "rows of cooperative tensors of " + type + "s, weights " +
                  (in_memory ? "by way of threadgroup memory" : "as a left input"),
          .kernel = "self_check_rows_" + type,
          .language = Language::metal4_0,
          .needed_by = {(in_memory ? "flash_attention_weights_in_memory_" : "flash_attention_left_input_") + type},
          .given = {as<T>(c.query), as<T>(c.key), as<T>(c.value), bytes_of(SelfCheckRowsParams{in_memory})},
          .results = {{ScalarType::Float, bytes_of_all(rows), false}, {dtype, bytes_of_all(out), false}}};
}

template <typename T>
SelfCheck fragments_check(ScalarType dtype) {
  using Sizes = SelfCheckFragments;
  constexpr int kRows = 8;
  const Case c(Sizes::rows, Sizes::keys, Sizes::head_dim, Sizes::value_dim);
  std::vector<float> rows(2 * kRows), out;
  for (int r = 0; r < c.rows; ++r) {
    const Row row(c, r, Sizes::keys);
    rows[static_cast<size_t>(r)] = row.largest, rows[static_cast<size_t>(kRows + r)] = row.sum;
    out.insert(out.end(), row.out.begin(), row.out.end());
  }
  out.resize(static_cast<size_t>(kRows * c.value_dim));  // the row that does not exist sees products of zeros
  const std::string type = type_name(dtype);
  return {.what = "lanes of simdgroup_matrix of " + type + "s",
          .kernel = "self_check_fragments_" + type,
          .language = Language::metal3_1,
          .needed_by = {"flash_attention_prefill_" + type},
          .given = {as<T>(c.query), as<T>(c.key), as<T>(c.value)},
          .results = {{ScalarType::Float, bytes_of_all(rows), false}, {ScalarType::Float, bytes_of_all(out), false}}};
}

}  // namespace

void add_attention_checks(std::vector<SelfCheck>& checks, Language language) {
  const auto check = [&]<typename T>(T, ScalarType dtype) {
    if (language == Language::metal3_1) return checks.push_back(fragments_check<T>(dtype));
    if (language != Language::metal4_0) return;
    for (const bool in_memory : {false, true}) checks.push_back(rows_check<T>(dtype, in_memory));
  };
  check(float{}, ScalarType::Float), check(Half{}, ScalarType::Half), check(BFloat16{}, ScalarType::BFloat16);
}

}  // namespace mtl4::runtime
