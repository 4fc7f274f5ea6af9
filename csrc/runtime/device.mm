#include "runtime/device.h"

#include <cctype>
#include <map>
#include <mutex>

#include "runtime/self_check.h"
#include "runtime/text.h"

namespace mtl4::runtime {
namespace {

// "g17s" of "applegpu_g17s". A name of another form leaves the caps of the oldest GPU, whose kernels run on all.
void read_architecture(const std::string& name, DeviceCaps& caps) {
  for (size_t i = name.find('g'); i != std::string::npos; i = name.find('g', i + 1)) {
    size_t end = i + 1;
    while (end < name.size() && end < i + 4 && std::isdigit(static_cast<unsigned char>(name[end]))) ++end;
    if (end == i + 1 || end >= name.size() || !std::isalpha(static_cast<unsigned char>(name[end]))) continue;
    caps.generation = std::stoi(name.substr(i + 1, end - i - 1));
    caps.size = name[end];
    return;
  }
}

// The layout of cooperative tensors that kernels are compiled for is that of macOS 26.2; scale planes came with 27.
std::string needs_macos(const DeviceCaps& caps, int major, int minor) {
  if (std::pair(caps.macos_major, caps.macos_minor) >= std::pair(major, minor)) return "";
  return "needs macOS " + std::to_string(major) + "." + std::to_string(minor) + ", this is " +
         std::to_string(caps.macos_major) + "." + std::to_string(caps.macos_minor);
}

// Why no part of a tier can be relied on, or nothing where one can.
std::string nothing_works(const std::vector<Verdict>& verdicts, Language language) {
  std::string why;
  for (const Verdict& verdict : verdicts) {
    if (verdict.language != language) continue;
    if (verdict.failed.empty()) return "";
    if (why.empty()) why = verdict.failed;
  }
  return why;
}

DeviceFacts find_facts(id<MTLDevice> device) {
  @autoreleasepool {
    DeviceFacts facts;
    facts.name = text_of(device.name);
    facts.architecture = text_of(device.architecture.name);
    read_architecture(facts.architecture, facts.caps);
    const NSOperatingSystemVersion system = NSProcessInfo.processInfo.operatingSystemVersion;
    facts.caps.macos_major = static_cast<int>(system.majorVersion);
    facts.caps.macos_minor = static_cast<int>(system.minorVersion);

    facts.no_tensor_ops = needs_macos(facts.caps, 26, 2);
    facts.no_scale_planes = facts.no_tensor_ops.empty() ? needs_macos(facts.caps, 27, 0) : "needs tensor_ops";
    const Language newest = facts.no_scale_planes.empty() ? Language::metal4_1
                            : facts.no_tensor_ops.empty() ? Language::metal4_0
                                                          : Language::metal3_1;
    const std::vector<Verdict> verdicts = self_check(device, newest);
    if (facts.no_tensor_ops.empty()) facts.no_tensor_ops = nothing_works(verdicts, Language::metal4_0);
    if (!facts.no_tensor_ops.empty()) facts.no_scale_planes = "needs tensor_ops";
    if (facts.no_scale_planes.empty()) facts.no_scale_planes = nothing_works(verdicts, Language::metal4_1);
    facts.caps.tensor_ops = facts.no_tensor_ops.empty();
    facts.caps.scale_planes = facts.no_scale_planes.empty();

    for (const Verdict& verdict : verdicts) {
      const bool of_a_tier_that_is_off = (verdict.language == Language::metal4_0 && !facts.caps.tensor_ops) ||
                                         (verdict.language == Language::metal4_1 && !facts.caps.scale_planes);
      if (verdict.failed.empty() || of_a_tier_that_is_off) continue;
      facts.caps.without.push_back(verdict.part);
      facts.without.emplace_back(verdict.part, verdict.failed);
    }
    return facts;
  }
}

}  // namespace

const DeviceFacts& facts_of(id<MTLDevice> device) {
  static std::mutex mutex;
  static auto* const known = new std::map<id<MTLDevice>, DeviceFacts>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known->find(device);
  return found != known->end() ? found->second : known->emplace(device, find_facts(device)).first->second;
}

}  // namespace mtl4::runtime
