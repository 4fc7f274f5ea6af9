#include "runtime/self_check.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <exception>
#include <map>
#include <sstream>

#include "runtime/held.h"
#include "runtime/pipelines.h"
#include "runtime/self_check_cases.h"
#include "runtime/text.h"

namespace mtl4::runtime {
namespace {

using torch::headeronly::ScalarType;

// Without what the process may have chosen for subnormal numbers, which are a part of what is expected.
std::vector<SelfCheck> cases(Language newest) {
  std::fenv_t chosen;
  std::fegetenv(&chosen);
  std::fesetenv(FE_DFL_ENV);
  std::vector<SelfCheck> checks;
  for (const Language language : {Language::metal3_1, Language::metal4_0, Language::metal4_1}) {
    if (language > newest) break;
    add_codec_checks(checks, language);
    add_linear_checks(checks, language);
    add_attention_checks(checks, language);
  }
  std::fesetenv(&chosen);
  return checks;
}

// A check on its way: what it runs with, and what was found.
struct Attempt {
  const SelfCheck* check;
  id<MTLComputePipelineState> pipeline = nil;
  std::vector<Held<id<MTLBuffer>>> buffers = {};
  std::string failed = {};
};

std::string said_by(const std::exception& error) {
  const std::string text = error.what();
  const size_t own = text.find("torch_mtl4:");  // torch puts the place in the source before it
  return own == std::string::npos ? text : text.substr(own);
}

// `refused`: languages that Metal does not take the source in, and why. It takes seconds to find out.
void prepare(id<MTLDevice> device, Attempt& attempt, std::map<Language, std::string>& refused) {
  const SelfCheck& check = *attempt.check;
  if (const auto found = refused.find(check.language); found != refused.end()) {
    attempt.failed = found->second;
    return;
  }
  try {
    attempt.pipeline = pipeline(device, {"self_check", check.language, check.kernel, check.constants});
  } catch (const SourceError& error) {
    attempt.failed = refused[check.language] = error.what();
    return;
  } catch (const std::exception& error) {
    attempt.failed = said_by(error);
    return;
  }
  const auto threads = static_cast<NSUInteger>(check.threads[0] * check.threads[1] * check.threads[2]);
  if (threads > attempt.pipeline.maxTotalThreadsPerThreadgroup) {
    attempt.failed = check.kernel + " runs with up to " +
                     std::to_string(attempt.pipeline.maxTotalThreadsPerThreadgroup) + " threads per threadgroup, not " +
                     std::to_string(threads);
    return;
  }
  std::vector<Bytes> contents = check.given;
  for (const Result& result : check.results)
    contents.emplace_back(result.want.size(), uint8_t{0xff});  // NaN, in floats
  for (const Bytes& bytes : contents) {
    attempt.buffers.push_back(Held<id<MTLBuffer>>::owned([device newBufferWithBytes:bytes.data()
                                                                             length:bytes.size()
                                                                            options:MTLResourceStorageModeShared]));
    if (!attempt.buffers.back()) attempt.failed = "there is no memory for a small test";
  }
}

MTLSize size_of(const std::array<int64_t, 3>& n) {
  return MTLSizeMake(static_cast<NSUInteger>(n[0]), static_cast<NSUInteger>(n[1]), static_cast<NSUInteger>(n[2]));
}

void encode(const Attempt& attempt, id<MTLComputeCommandEncoder> encoder) {
  [encoder setComputePipelineState:attempt.pipeline];
  for (size_t i = 0; i < attempt.buffers.size(); ++i) [encoder setBuffer:attempt.buffers[i].get() offset:0 atIndex:i];
  [encoder dispatchThreadgroups:size_of(attempt.check->groups) threadsPerThreadgroup:size_of(attempt.check->threads)];
}

// Why the attempts did not get to their end, or nothing.
std::string run(id<MTLCommandQueue> queue, const std::vector<Attempt*>& attempts) {
  try {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    for (const Attempt* attempt : attempts) encode(*attempt, encoder);
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    return commands.error ? "a small test failed: " + text_of(commands.error) : "";
  } catch (const std::exception& error) {
    return said_by(error);
  }
}

template <typename T>
double number(const Bytes& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return static_cast<double>(value);
}

size_t bytes_of_one(ScalarType type) {
  return type == ScalarType::Byte ? 1 : type == ScalarType::Half || type == ScalarType::BFloat16 ? 2 : 4;
}

double number(ScalarType type, const Bytes& bytes, size_t i) {
  switch (type) {
    case ScalarType::Byte:
      return number<uint8_t>(bytes, i);
    case ScalarType::UInt32:
      return number<uint32_t>(bytes, i);
    case ScalarType::Half:
      return number<torch::headeronly::Half>(bytes, i);
    case ScalarType::BFloat16:
      return number<torch::headeronly::BFloat16>(bytes, i);
    default:
      return number<float>(bytes, i);
  }
}

bool equal(const Result& result, const Bytes& got, size_t i) {
  const size_t size = bytes_of_one(result.type), at = i * size;
  if (std::memcmp(got.data() + at, result.want.data() + at, size) == 0) return true;
  const double want = number(result.type, result.want, i), have = number(result.type, got, i);
  return (std::isnan(want) && std::isnan(have)) || (!result.bit_for_bit && want == have);
}

void compare(Attempt& attempt) {
  size_t wrong = 0, total = 0;
  std::ostringstream first;
  for (size_t r = 0; r < attempt.check->results.size(); ++r) {
    const Result& result = attempt.check->results[r];
    Bytes got(result.want.size());
    std::memcpy(got.data(), [attempt.buffers[attempt.check->given.size() + r].get() contents], got.size());
    const size_t count = got.size() / bytes_of_one(result.type);
    total += count;
    for (size_t i = 0; i < count; ++i) {
      if (equal(result, got, i) || wrong++ > 0) continue;
      first << ", the first at " << i << " of result " << r << ": expected " << number(result.type, result.want, i)
            << ", got " << number(result.type, got, i);
    }
  }
  if (wrong > 0)
    attempt.failed = std::to_string(wrong) + " of " + std::to_string(total) + " elements are wrong" + first.str();
}

void run_all(id<MTLDevice> device, std::vector<Attempt>& attempts) {
  const auto queue = Held<id<MTLCommandQueue>>::owned([device newCommandQueue]);
  std::vector<Attempt*> ready;
  std::map<Language, std::string> refused;
  for (Attempt& attempt : attempts) {
    prepare(device, attempt, refused);
    if (!queue && attempt.failed.empty()) attempt.failed = "there is no queue for a small test";
    if (attempt.failed.empty()) ready.push_back(&attempt);
  }
  if (ready.empty()) return;
  // What goes wrong for all of them is one's fault: each is run alone then.
  if (!run(queue.get(), ready).empty())
    for (Attempt* attempt : ready) attempt->failed = run(queue.get(), {attempt});
  for (Attempt* attempt : ready)
    if (attempt->failed.empty()) compare(*attempt);
}

}  // namespace

std::vector<Verdict> self_check(id<MTLDevice> device, Language newest) {
  @autoreleasepool {
    const std::vector<SelfCheck> checks = cases(newest);
    std::vector<Attempt> attempts;
    for (const SelfCheck& check : checks) attempts.push_back({&check});
    run_all(device, attempts);

    std::vector<Verdict> verdicts;
    for (const Attempt& attempt : attempts) {
      const SelfCheck& check = *attempt.check;
      for (const std::string& part : check.needed_by) {
        auto of_part = std::ranges::find(verdicts, part, &Verdict::part);
        if (of_part == verdicts.end()) of_part = verdicts.insert(verdicts.end(), {part, check.language, ""});
        if (of_part->failed.empty() && !attempt.failed.empty()) of_part->failed = check.what + ": " + attempt.failed;
      }
    }
    return verdicts;
  }
}

}  // namespace mtl4::runtime
