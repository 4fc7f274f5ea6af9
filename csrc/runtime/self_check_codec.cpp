// Self-checks of the number formats: what the CPU's codec makes of the same bytes and values, bit for bit.
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/kernels/mxfp8.h"
#include "plan/mxfp8_dequantize.h"
#include "plan/mxfp8_quantize.h"
#include "plan/words.h"
#include "runtime/self_check_cases.h"
#include "self_check/params.h"

namespace mtl4::runtime {
namespace {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;
using torch::headeronly::ScalarType;

constexpr int kCodes = 256, kBytes = 256;

// Every code under every scale byte: [256 bytes, 256 codes], and a scale byte for each 32 codes.
struct EveryCode {
  std::vector<uint8_t> data, scale;

  EveryCode() {
    for (int byte = 0; byte < kBytes; ++byte) {
      for (int code = 0; code < kCodes; ++code) data.push_back(static_cast<uint8_t>(code));
      scale.insert(scale.end(), kCodes / kMxBlock, static_cast<uint8_t>(byte));
    }
  }
};

template <typename T>
std::vector<T> dequantized(const EveryCode& every, ScalarType dtype) {
  std::vector<T> values(every.data.size());
  cpu::baseline::mxfp8_dequantize({dtype, kBytes, kCodes}, every.data.data(), every.scale.data(), values.data());
  return values;
}

// Kernels decode a code in two parts, so that both are normal floats: under the nearest scale byte from 10 to 245, and
// a factor for what that leaves (metal/common/mx.h).
SelfCheck decode_check(Language language, std::vector<std::string> needed_by) {
  const std::vector<float> values = dequantized<float>(EveryCode(), ScalarType::Float);
  std::vector<float> decoded, rest;
  for (int byte = 0; byte < kBytes; ++byte) {
    const int inside = std::clamp(byte, 10, 245);
    const auto row = values.begin() + inside * kCodes;
    decoded.insert(decoded.end(), row, row + kCodes);
    rest.push_back(byte == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, byte - inside));
  }
  return {.what = "decoding of e4m3 under e8m0",
          .kernel = "self_check_decode",
          .language = language,
          .needed_by = std::move(needed_by),
          .results = {{ScalarType::Float, bytes_of_all(decoded)}, {ScalarType::Float, bytes_of_all(rest)}},
          .groups = {kBytes, 1, 1},
          .threads = {kCodes, 1, 1}};
}

template <typename T>
SelfCheck dequantize_check(ScalarType dtype) {
  const EveryCode every;
  const KernelPlan plan = plan_mxfp8_dequantize({dtype, kBytes, kCodes}, {});
  const Pass& pass = plan.passes.at(0);
  return {.what = "dequantization to " + type_name(dtype) + "s of every code under every scale",
          .kernel = "self_check_dequantize_" + type_name(dtype),
          .language = plan.language,
          .needed_by = {"mxfp8_dequantize_" + type_name(dtype)},
          .given = {every.data, every.scale, pass.params},
          .results = {{dtype, bytes_of_all(dequantized<T>(every, dtype))}},
          .groups = pass.groups,
          .threads = pass.threads};
}

// Blocks that are led by the ends of both formats and by the values between which the scaling modes differ. Below the
// leader come ties of e4m3 and their neighbours, through its subnormals down to nothing.
std::vector<float> edges() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float leaders[] = {0.0f,     -0.0f,    448.0f,    448.25f,   464.0f,      480.0f,        1.0f,
                           1.75f,    1.8125f,  1.875f,    1.9375f,   1.96875f,    1.9921875f,    -1.7578125f,
                           0x1p-14f, 0x1p-24f, 0x1p-126f, 0x1p-133f, 0x1.8p-130f, 0x1p-149f,     65504.0f,
                           0x1p127f, 1e-30f,   3e38f,     kInfinity, -kInfinity,  std::nanf(""), 0x1.fffffep-1f,
                           -448.0f,  0x1p-9f,  0x1p-118f, -3.0f};
  std::vector<float> values;
  for (int row = 0; row < SelfCheckQuantize::rows; ++row) {
    for (int k = 0; k < SelfCheckQuantize::k; ++k) {
      const float leader = leaders[(row + k / kMxBlock) % std::ssize(leaders)];
      const int at = k % kMxBlock, led_from = row < std::ssize(leaders) ? 0 : 5;
      const float scale = std::isfinite(leader) ? std::abs(leader) : 1.0f;
      float value = at == led_from ? leader : std::ldexp(scale * static_cast<float>(16 + at % 16) / 32, -at / 2);
      if (at != led_from && at % 3 != 0) value = std::nextafter(value, at % 3 == 1 ? 0.0f : kInfinity);
      values.push_back(at % 4 == 1 ? -value : value);
    }
  }
  return values;
}

template <typename T>
SelfCheck quantize_check(ScalarType dtype) {
  constexpr int kBlocks = static_cast<int>((SelfCheckQuantize::k + kMxBlock - 1) / kMxBlock);
  std::vector<T> x;
  for (const float value : edges()) x.push_back(static_cast<T>(value));
  Bytes data(static_cast<size_t>(SelfCheckQuantize::modes * SelfCheckQuantize::rows * SelfCheckQuantize::k));
  Bytes scale(static_cast<size_t>(SelfCheckQuantize::modes * SelfCheckQuantize::rows * kBlocks));
  Mxfp8CodecProblem problem{dtype, SelfCheckQuantize::rows, SelfCheckQuantize::k};
  for (int mode = 0; mode < SelfCheckQuantize::modes; ++mode) {
    problem.scaling = static_cast<ScalingMode>(mode);
    cpu::baseline::mxfp8_quantize(problem, x.data(),
                                  data.data() + mode * SelfCheckQuantize::rows * SelfCheckQuantize::k,
                                  scale.data() + mode * SelfCheckQuantize::rows * kBlocks);
  }
  const KernelPlan plan = plan_mxfp8_quantize(problem, {});
  const Pass& pass = plan.passes.at(0);
  return {.what = "quantization of " + type_name(dtype) + "s at the edges of the formats",
          .kernel = "self_check_quantize_" + type_name(dtype),
          .language = plan.language,
          .needed_by = {"mxfp8_quantize_" + type_name(dtype)},
          .given = {bytes_of_all(x), pass.params},
          .results = {{ScalarType::Byte, data}, {ScalarType::Byte, scale}},
          .groups = pass.groups,
          .threads = pass.threads};
}

}  // namespace

void add_codec_checks(std::vector<SelfCheck>& checks, Language language) {
  switch (language) {
    case Language::metal3_1: {
      checks.push_back(
          decode_check(language, {"mxfp8_gemv_float", "mxfp8_gemv_half", "mxfp8_gemv_bfloat", "mxfp8_simdgroup_float",
                                  "mxfp8_simdgroup_half", "mxfp8_simdgroup_bfloat"}));
      const auto check = [&]<typename T>(T, ScalarType dtype) {
        checks.push_back(dequantize_check<T>(dtype));
        checks.push_back(quantize_check<T>(dtype));
      };
      check(float{}, ScalarType::Float), check(Half{}, ScalarType::Half), check(BFloat16{}, ScalarType::BFloat16);
      return;
    }
    case Language::metal4_0:
      return checks.push_back(decode_check(language, {"mxfp8_tensor_ops_half", "mxfp8_tensor_ops_bfloat"}));
    case Language::metal4_1:  // of rows whose x halves cannot hold
      return checks.push_back(decode_check(language, {"mxfp8_scale_planes_bfloat"}));
  }
}

}  // namespace mtl4::runtime
