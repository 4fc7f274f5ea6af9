#include "plan/plan.h"

namespace mtl4 {
namespace {

std::string quoted(const std::string& s) { return '"' + s + '"'; }

template <typename List, typename F>
std::string list(const List& items, const F& item) {
  std::string s = "[";
  for (const auto& each : items) s += (s.size() > 1 ? ", " : "") + item(each);
  return s + "]";
}

std::string sizes(const std::array<int64_t, 3>& a) {
  return list(a, [](int64_t n) { return std::to_string(n); });
}

std::string hex(const std::vector<uint8_t>& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string s;
  for (const uint8_t b : bytes) s += kDigits[b >> 4], s += kDigits[b & 15];
  return s;
}

std::string constant(const FunctionConstant& c) {
  const std::string value = c.is_bool ? (c.value != 0 ? "true" : "false") : std::to_string(c.value);
  return "[" + std::to_string(c.index) + ", " + quoted(c.name) + ", " + value + "]";
}

std::string pass(const Pass& p) {
  return "\n  {\"kernel\": " + quoted(p.kernel) + ",\n   \"constants\": " + list(p.constants, constant) +
         ",\n   \"arguments\": " +
         list(p.arguments,
              [](const Argument& a) { return "[" + std::to_string(a.index) + ", " + quoted(a.name) + "]"; }) +
         ",\n   \"params\": [" + std::to_string(p.params_index) + ", " + quoted(hex(p.params)) + "]" +
         (p.grid[0] > 0 ? ",\n   \"grid\": " + sizes(p.grid) : ",\n   \"groups\": " + sizes(p.groups)) +
         ", \"threads\": " + sizes(p.threads) + "}";
}

}  // namespace

std::string to_json(const KernelPlan& plan) {
  const int language = static_cast<int>(plan.language);
  return "{\"source\": " + quoted(plan.source) + ", \"language\": \"" + std::to_string(language / 10) + "." +
         std::to_string(language % 10) + "\",\n \"scratch\": " +
         list(plan.scratch,
              [](const Scratch& s) { return "[" + quoted(s.name) + ", " + std::to_string(s.bytes) + "]"; }) +
         ",\n \"passes\": " + list(plan.passes, pass) + "}";
}

}  // namespace mtl4
