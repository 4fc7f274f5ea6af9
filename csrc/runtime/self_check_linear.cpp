// Self-checks of mxfp8_linear: its own bodies on small whole numbers, whose sums are exact in any order.
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/kernels/mxfp8.h"
#include "plan/mxfp8_linear.h"
#include "plan/words.h"
#include "runtime/self_check_cases.h"

namespace mtl4::runtime {
namespace {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;
using torch::headeronly::ScalarType;

constexpr uint8_t kOne = 0x38, kNan = 0x7f;
constexpr const char* kEveryTier = "g17s macos27 tensor_ops scale_planes";

struct Weight {
  int n, k;
  std::vector<uint8_t> codes, scale;

  Weight(int n_, int k_) : n(n_), k(k_), codes(size(n_, k_), 0), scale(size(n_, k_ / kMxBlock), 127) {}
  static size_t size(int64_t rows, int64_t columns) { return static_cast<size_t>(rows * columns); }
  uint8_t& code(int row, int column) { return codes[size(row, k) + static_cast<size_t>(column)]; }
  uint8_t& block_scale(int row, int block) { return scale[size(row, k / kMxBlock) + static_cast<size_t>(block)]; }

  std::vector<float> values() const {
    std::vector<float> values(codes.size());
    cpu::baseline::mxfp8_dequantize({ScalarType::Float, n, k}, codes.data(), scale.data(), values.data());
    return values;
  }
};

template <typename Out, typename T>
std::vector<Out> product(const std::vector<T>& x, int m, const Weight& w) {
  const std::vector<float> values = w.values();
  std::vector<Out> out;
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < w.n; ++column) {
      double sum = 0;
      for (int k = 0; k < w.k; ++k)
        sum += static_cast<double>(static_cast<float>(x[Weight::size(row, w.k) + static_cast<size_t>(k)])) *
               static_cast<double>(values[Weight::size(column, w.k) + static_cast<size_t>(k)]);
      out.push_back(static_cast<Out>(static_cast<float>(sum)));
    }
  }
  return out;
}

// The check of a kernel that takes x, weight, scale, params and out. How it is launched is what the plan of `caps`
// says.
template <typename Out, typename T>
SelfCheck linear_check(std::string what, std::string kernel, ScalarType x_type, ScalarType out_type,
                       std::vector<std::string> needed_by, const std::vector<T>& x, int m, const Weight& w,
                       const char* caps) {
  const Mxfp8LinearProblem problem{x_type, m, w.n, w.k, w.k, w.k / kMxBlock};
  const KernelPlan plan = plan_mxfp8_linear(problem, false, parse_device_caps(caps));
  const Pass& pass = plan.passes.at(0);
  return {.what = std::move(what),
          .kernel = std::move(kernel),
          .language = plan.language,
          .needed_by = std::move(needed_by),
          .constants = pass.constants,
          .given = {bytes_of_all(x), w.codes, w.scale, pass.params},
          .results = {{out_type, bytes_of_all(product<Out>(x, m, w)), false}},
          .groups = pass.groups,
          .threads = pass.threads};
}

template <typename T>
std::vector<T> small_x(int m, int k) {
  SmallNumbers numbers(1);
  std::vector<T> x;
  for (int i = 0; i < m * k; ++i) x.push_back(static_cast<T>(static_cast<float>(numbers.next(3))));
  return x;
}

// Quarters from -2 to 2, each block of each row under a scale of its own.
Weight small_weight(int n, int k) {
  constexpr uint8_t kCodes[] = {0x00, 0x28, 0x30, 0x34, 0x38, 0x3a, 0x3c, 0x3e, 0x40};
  SmallNumbers numbers(2);
  Weight w(n, k);
  for (uint8_t& code : w.codes) {
    const int value = numbers.next(8);
    code = static_cast<uint8_t>(kCodes[std::abs(value)] | (value < 0 ? 0x80 : 0));
  }
  for (uint8_t& scale : w.scale) scale = static_cast<uint8_t>(127 + numbers.next(2));
  return w;
}

// Rows of extreme scales, which take another way through the kernel: one alone in its row, so that nothing is lost
// beside it, and one beside which everything is.
void add_extremes(Weight& w) {
  for (int k = 0; k < w.k; ++k)
    if (k / kMxBlock != 1) w.code(6, k) = 0;
  w.block_scale(6, 1) = 4;
  w.block_scale(5, 1) = 247;
}

// Of a family of kernels that take tiles: "simdgroup", "tensor_ops".
template <typename T>
SelfCheck tiled_check(const std::string& family, std::string what, ScalarType dtype, const char* caps) {
  constexpr int kM = 20, kN = 70, kK = 96;
  const std::string name = family + "_" + type_name(dtype);
  Weight w = small_weight(kN, kK);
  if (dtype != ScalarType::Half) add_extremes(w);
  return linear_check<T>(std::move(what), "self_check_" + name, dtype, dtype, {"mxfp8_" + name}, small_x<T>(kM, kK), kM,
                         w, caps);
}

SelfCheck scale_planes_check(std::string what, const std::vector<Half>& x, int m, const Weight& w) {
  return linear_check<float>(std::move(what), "self_check_scale_planes", ScalarType::Half, ScalarType::Float,
                             {"mxfp8_scale_planes_half", "mxfp8_scale_planes_bfloat"}, x, m, w, kEveryTier);
}

// Row m of x has one value, at 8 * m: it picks an element of each row of the weight.
std::vector<Half> picks(int m, int k) {
  std::vector<Half> x(Weight::size(m, k));
  for (int row = 0; row < m; ++row) x[Weight::size(row, k) + static_cast<size_t>(8 * row)] = static_cast<Half>(1.0f);
  return x;
}

SelfCheck planes_of_every_code() {
  constexpr int kM = 32, kN = 64, kK = 256, kRowOfNan = 5;
  Weight w(kN, kK);
  for (int n = 0; n < kN; ++n) {
    for (int m = 0; m < kM; ++m) {
      const auto code = static_cast<uint8_t>(m * 64 + n + m / 4);
      w.code(n, 8 * m) = (code & kNan) == kNan && n != kRowOfNan ? 0 : code;
    }
  }
  w.code(kRowOfNan, 1) = kNan;
  return scale_planes_check("every code of an operand with scales", picks(kM, kK), kM, w);
}

// Scales of the lower half on 2 and of the upper half on 1/2, so that no product is subnormal or infinite.
SelfCheck planes_of_every_scale() {
  constexpr int kM = 32, kN = 64, kK = 256, kBlocks = kK / static_cast<int>(kMxBlock);
  Weight w(kN, kK);
  for (int n = 0; n < kN; ++n) {
    for (int block = 0; block < kBlocks; ++block) {
      const int byte = (n * kBlocks + block) % 256;
      w.block_scale(n, block) = static_cast<uint8_t>(byte == 255 && n >= kN / 2 ? 127 : byte);
      for (int k = block * 32; k < block * 32 + 32; k += 8)
        w.code(n, k) = static_cast<uint8_t>(byte < 128 ? kOne + 8 : kOne - 8);
    }
  }
  return scale_planes_check("every scale of an operand with scales", picks(kM, kK), kM, w);
}

// Rows of bfloats made halves by a power of two each, or marked where that loses something.
SelfCheck narrow_check() {
  constexpr int kRows = 12, kK = 384;
  const float pairs[kRows][2] = {{1, 3},
                                 {0, 0},
                                 {0x1p100f, 0x1.8p100f},
                                 {0x1p-100f, -0x1p-100f},
                                 {0x1p15f, 0x1p-14f},
                                 {0x1p16f, 0x1p-14f},
                                 {0x1p-30f, 0x1p-1f},
                                 {0x1p-130f, 1},
                                 {1, std::numeric_limits<float>::infinity()},
                                 {std::nanf(""), 1},
                                 {0x1p-126f, 0x1p-120f},
                                 {-0x1.fep127f, 0}};
  std::vector<BFloat16> x(Weight::size(kRows, kK));
  std::vector<Half> narrowed(x.size());
  std::vector<float> factor;
  std::vector<uint32_t> wide;
  for (int row = 0; row < kRows; ++row) {
    int low = 1000, high = -1000;
    bool fits = true;
    const size_t begin = Weight::size(row, kK);
    for (size_t i = 0; i < 2; ++i) {  // in two simdgroups
      const float value = pairs[row][i];
      x[begin + 3 + 290 * i] = static_cast<BFloat16>(value);
      fits &= value == 0 || std::isnormal(value);
      if (value != 0 && std::isfinite(value))
        low = std::min(low, std::ilogb(value)), high = std::max(high, std::ilogb(value));
    }
    fits &= high - low <= 29;  // half's normal numbers
    if (!fits) high = std::isfinite(pairs[row][0]) && std::isfinite(pairs[row][1]) ? high : 128;
    const int up = high == -1000 ? 0 : std::min(15 - high, 126);
    factor.push_back(std::ldexp(1.0f, -up));
    wide.push_back(fits ? 0 : 1);
    for (size_t i = begin; fits && i < begin + kK; ++i)
      narrowed[i] = static_cast<Half>(std::ldexp(static_cast<float>(x[i]), up));
  }
  const Mxfp8LinearProblem problem{ScalarType::BFloat16, kRows, 64, kK, kK, kK / kMxBlock};
  const KernelPlan plan = plan_mxfp8_linear(problem, false, parse_device_caps(kEveryTier));
  const Pass& pass = plan.passes.at(0);
  return {.what = "rows of bfloats as halves",
          .kernel = "self_check_narrow",
          .language = plan.language,
          .needed_by = {"mxfp8_scale_planes_bfloat"},
          .given = {bytes_of_all(x), pass.params},
          .results = {{ScalarType::Half, bytes_of_all(narrowed), false},
                      {ScalarType::Float, bytes_of_all(factor)},
                      {ScalarType::UInt32, bytes_of_all(wide)}},
          .groups = pass.groups,
          .threads = pass.threads};
}

}  // namespace

void add_linear_checks(std::vector<SelfCheck>& checks, Language language) {
  const std::string four = "matmul2d of four simdgroups, ";
  switch (language) {
    case Language::metal3_1: {
      const auto check = [&]<typename T>(T, ScalarType dtype) {
        const std::string what = "simdgroup_matrix, x of " + type_name(dtype) + "s";
        checks.push_back(tiled_check<T>("simdgroup", what, dtype, "g13g macos14"));
      };
      check(float{}, ScalarType::Float), check(Half{}, ScalarType::Half), check(BFloat16{}, ScalarType::BFloat16);
      return;
    }
    case Language::metal4_0: {
      const char* caps = "g17s macos26.2 tensor_ops";
      checks.push_back(tiled_check<Half>("tensor_ops", four + "half by bfloat", ScalarType::Half, caps));
      checks.push_back(tiled_check<BFloat16>("tensor_ops", four + "bfloat by bfloat", ScalarType::BFloat16, caps));
      return;
    }
    case Language::metal4_1: {
      constexpr int kM = 20, kN = 70, kK = 256;
      checks.push_back(
          scale_planes_check(four + "half by an operand with scales", small_x<Half>(kM, kK), kM, small_weight(kN, kK)));
      checks.push_back(planes_of_every_code());
      checks.push_back(planes_of_every_scale());
      checks.push_back(narrow_check());
      return;
    }
  }
}

}  // namespace mtl4::runtime
