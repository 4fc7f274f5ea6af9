#include "plan/device_caps.h"

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

bool read_word(std::string_view word, DeviceCaps& caps) {
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
  return "g" + std::to_string(caps.generation) + caps.size + " macos" + std::to_string(caps.macos_major) + "." +
         std::to_string(caps.macos_minor) + (caps.tensor_ops ? " tensor_ops" : "") +
         (caps.scale_planes ? " scale_planes" : "");
}

}  // namespace mtl4
