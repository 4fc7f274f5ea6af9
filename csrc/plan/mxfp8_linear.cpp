#include "plan/mxfp8_linear.h"

#include "mxfp8_linear/params.h"
#include "plan/words.h"

namespace mtl4 {
namespace {

using torch::headeronly::ScalarType;

constexpr int64_t kGemvRows = 8;  // of x, at most
constexpr int64_t kTileColumns = 64, kTileThreads = 128;

struct Linear {
  const Mxfp8LinearProblem& p;
  bool has_bias;

  Mxfp8LinearParams params(int64_t first_row, int64_t first_column) const {
    return {p.m, p.n, p.k, p.weight_stride, p.weight_scale_stride, p.bias_stride, first_row, first_column};
  }

  // The pass of a kernel whose threadgroups make rows by columns of out.
  void add(KernelPlan& plan, const Pass& pass, int64_t rows, int64_t columns) const {
    for_each_grid(ceil_div(p.n, columns), ceil_div(p.m, rows),
                  [&](int64_t first_x, int64_t first_y, int64_t x, int64_t y) {
                    plan.passes.push_back(pass);
                    plan.passes.back().params = bytes_of(params(first_y * rows, first_x * columns));
                    plan.passes.back().groups = {x, y, 1};
                  });
  }

  Pass pass(const std::string& kernel, int64_t threads) const {
    Pass pass{.kernel = kernel + "_" + type_name(p.dtype),
              .constants = {{0, "has_bias", true, has_bias}, {1, "aligned", true, aligned()}},
              .arguments = {{0, "x"}, {1, "weight"}, {2, "weight_scale"}, {4, "out"}},
              .params_index = 5,
              .params = {},
              .groups = {},
              .threads = {threads, 1, 1}};
    if (has_bias) pass.arguments.insert(pass.arguments.begin() + 3, {3, "bias"});
    return pass;
  }

  bool aligned() const { return p.weight_offset % 16 == 0 && p.weight_stride % 16 == 0; }
};

// What an fp8 operand with a plane of scales asks for: rows and starts at multiples of 128 bytes, scales without gaps,
// and positions within 31 bits. Apple's headers demand it of MTLTensor; of tensors made in a kernel nobody says.
bool fits_scale_planes(const Mxfp8LinearProblem& p) {
  constexpr int64_t kBytes = 128, kMost = int64_t{1} << 30;
  return p.k > 0 && p.k % kBytes == 0 && p.weight_stride % kBytes == 0 && p.weight_stride >= p.k &&
         p.weight_scale_stride == p.k / kMxBlock && p.weight_offset % kBytes == 0 &&
         p.weight_scale_offset % kBytes == 0 && p.weight_stride * kTileColumns < kMost;
}

// The pass of a kernel over vectors: `rows` of x, a threadgroup for each `columns` of out.
struct Gemv {
  Pass pass;
  int64_t columns;
};

// Each row of the weight has 512 bytes under way at a time. 6 KiB for each core keep the memory busy, if its latency is
// half a microsecond, which is a guess: what a core gets of the bandwidth is 8 to 15 GB/s by Apple's specifications of
// M1 to M5 (2026-11). Small threadgroups spread evenly over the cores; two simdgroups as in MLX's qmv (2026-08).
Gemv gemv(const Linear& linear, const std::string& kernel, int64_t rows, const DeviceCaps& caps) {
  constexpr int64_t kMaxSplit = 8, kMinSimdgroups = 2, kBytesAtOnce = 512, kBytesOfACore = 6 * 1024;
  int64_t split = 1;
  while (split < kMaxSplit && 2 * split * kBytesAtOnce <= linear.p.k &&
         linear.p.n * split * kBytesAtOnce < caps.cores() * kBytesOfACore)
    split *= 2;
  const int64_t simdgroups = std::max(split, kMinSimdgroups);
  Pass pass = linear.pass(kernel, simdgroups * 32);
  pass.constants.push_back({2, "split", false, static_cast<int32_t>(split)});
  return {pass, simdgroups / split * (rows > 4 ? 2 : 4)};
}

void add_gemv(const Linear& linear, const DeviceCaps& caps, KernelPlan& plan) {
  const int64_t m = linear.p.m, rows = m <= 2 ? m : m <= 4 ? 4 : 8;
  const Gemv g = gemv(linear, "mxfp8_gemv_" + std::to_string(rows), rows, caps);
  linear.add(plan, g.pass, rows, g.columns);
}

Pass tiles(const Linear& linear, const std::string& kernel, int64_t rows) {
  return linear.pass(kernel + "_" + std::to_string(rows), kTileThreads);
}

// x of bfloats becomes halves first; rows that do not are computed from the bfloats in the end.
void add_scale_planes(const Linear& linear, int64_t rows, const DeviceCaps& caps, KernelPlan& plan) {
  constexpr int64_t kNarrowThreads = 256;
  const Mxfp8LinearProblem& p = linear.p;
  Pass matmul = tiles(linear, "mxfp8_scale_planes", rows);
  if (p.dtype == ScalarType::Half) return linear.add(plan, matmul, rows, kTileColumns);

  plan.scratch = {{"narrowed", 2 * p.m * p.k}, {"factor", 4 * p.m}, {"wide", 4 * p.m}};
  Pass narrow = linear.pass("mxfp8_narrow", kNarrowThreads);
  narrow.constants.clear();
  narrow.arguments = {{0, "x"}, {1, "narrowed"}, {6, "factor"}, {7, "wide"}};
  linear.add(plan, narrow, 1, p.n);
  matmul.arguments.front().name = "narrowed";
  matmul.arguments.insert(matmul.arguments.end(), {{6, "factor"}, {7, "wide"}});
  linear.add(plan, matmul, rows, kTileColumns);
  Gemv wide = gemv(linear, "mxfp8_wide_rows", 1, caps);
  wide.pass.arguments.push_back({7, "wide"});
  linear.add(plan, wide.pass, p.m, wide.columns);
}

}  // namespace

KernelPlan plan_mxfp8_linear(const Mxfp8LinearProblem& p, bool has_bias, const DeviceCaps& caps) {
  const Linear linear{p, has_bias};
  KernelPlan plan{"mxfp8_linear", Language::metal3_1, {}, {}};
  if (p.m == 0 || p.n == 0) return plan;
  const int64_t rows = p.m <= 32 ? 32 : 64;
  const std::string type = type_name(p.dtype);
  const bool simdgroup = caps.works("mxfp8_simdgroup", type);
  // The matrix units know no product of floats, and halves hold none of float's precision: float32 stays on
  // simdgroup_matrix. Where that fails, matmul2d serves without them too.
  const bool matmul2d = caps.tensor_ops && (caps.matrix_units() || !simdgroup) && p.dtype != ScalarType::Float;
  if (p.m <= kGemvRows) {
    caps.need("mxfp8_linear", "mxfp8_gemv", type);
    add_gemv(linear, caps, plan);
  } else if (matmul2d && caps.scale_planes && caps.works("mxfp8_scale_planes", type) && fits_scale_planes(p)) {
    plan.language = Language::metal4_1;
    add_scale_planes(linear, rows, caps, plan);
  } else if (matmul2d && caps.works("mxfp8_tensor_ops", type)) {
    plan.language = Language::metal4_0;
    linear.add(plan, tiles(linear, "mxfp8_tensor_ops", rows), rows, kTileColumns);
  } else {
    caps.need("mxfp8_linear", "mxfp8_simdgroup", type);
    linear.add(plan, tiles(linear, "mxfp8_simdgroup", rows), rows, kTileColumns);
  }
  return plan;
}

}  // namespace mtl4
