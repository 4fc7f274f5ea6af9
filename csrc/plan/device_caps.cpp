#include "plan/device_caps.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <stdexcept>

namespace mtl4 {
namespace {

bool number(std::string_view& text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool skip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// What a self-check can find not to work.
constexpr std::string_view kParts[] = {
    "mxfp8_quantize",
    "mxfp8_dequantize",
    "mxfp8_gemv",
    "mxfp8_simdgroup",
    "mxfp8_tensor_ops",
    "mxfp8_scale_planes",
    "flash_attention_prefill",
    "flash_attention_left_input",         // of tensor_ops: weights stay in registers between the two products,
    "flash_attention_weights_in_memory",  // or go by way of threadgroup memory
};
constexpr std::string_view kTypes[] = {"float", "half", "bfloat"};

std::string name_of(std::string_view part, std::string_view type) {
  return std::string(part) + "_" + std::string(type);
}

bool is_part(std::string_view word) {
  return std::ranges::any_of(kParts, [&](std::string_view part) {
    return std::ranges::any_of(kTypes, [&](std::string_view type) { return word == name_of(part, type); });
  });
}

bool read_word(std::string_view word, DeviceCaps& caps) {
  if (skip(word, "-")) {
    caps.without.emplace_back(word);
    return is_part(word);
  }
  if (word == "tensor_ops") return caps.tensor_ops = true;
  if (word == "scale_planes") return caps.scale_planes = true;
  if (skip(word, "macos")) {
    caps.macos_minor = 0;
    return number(word, caps.macos_major) && (word.empty() || (skip(word, ".") && number(word, caps.macos_minor))) &&
           word.empty();
  }
  if (!skip(word, "g") || !number(word, caps.generation) || word.size() != 1) return false;
  caps.size = word[0];
  return true;
}

}  // namespace

bool DeviceCaps::works(std::string_view part, std::string_view type) const {
  return std::ranges::find(without, name_of(part, type)) == without.end();
}

void DeviceCaps::need(std::string_view op, std::string_view part, std::string_view type) const {
  if (works(part, type)) return;
  throw std::runtime_error(std::string(op) + ": expected a GPU that passes the self-check of " + name_of(part, type) +
                           ", got one that failed it: torch_mtl4.backend_status() says how");
}

DeviceCaps parse_device_caps(std::string_view text) {
  DeviceCaps caps;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (read_word(word, caps)) continue;
    throw std::invalid_argument("device caps: expected words as in 'g17s macos26.2 tensor_ops scale_planes', got '" +
                                word + "'");
  }
  return caps;
}

std::string to_string(const DeviceCaps& caps) {
  std::string text = "g" + std::to_string(caps.generation) + caps.size + " macos" + std::to_string(caps.macos_major) +
                     "." + std::to_string(caps.macos_minor) + (caps.tensor_ops ? " tensor_ops" : "") +
                     (caps.scale_planes ? " scale_planes" : "");
  for (const std::string& part : caps.without) text += " -" + part;
  return text;
}

}  // namespace mtl4
