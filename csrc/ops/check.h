// Words for the contracts: an error names the op, the argument, what was expected and what came.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/device.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <string>

// Where this throws, the caller of the raw op gets a RuntimeError with exactly this text.
#define MTL4_CHECK(op, cond, argument, expected, got) \
  STD_TORCH_CHECK(cond, op, ": expected ", argument, " ", expected, ", got ", got)

namespace mtl4 {

inline std::string shape_string(const torch::stable::Tensor& t) {
  std::string s = "[";
  for (int64_t i = 0; i < t.dim(); ++i) s += (i ? ", " : "") + std::to_string(t.size(i));
  return s + "]";
}

inline std::string dtype_string(torch::headeronly::ScalarType t) { return torch::headeronly::toString(t); }

inline bool is_float(torch::headeronly::ScalarType t) {
  using torch::headeronly::ScalarType;
  return t == ScalarType::Float || t == ScalarType::Half || t == ScalarType::BFloat16;
}

inline std::string device_string(const torch::stable::Tensor& t) {
  using torch::headeronly::DeviceType;
  const DeviceType type = t.device().type();
  return type == DeviceType::CPU ? "cpu" : type == DeviceType::MPS ? "mps" : "another device";
}

// An op runs where its first tensor is, and takes none from anywhere else.
inline void check_device(const char* op, const torch::stable::Tensor& t, const char* name) {
  const std::string device = device_string(t);
  MTL4_CHECK(op, device == "cpu" || device == "mps", name, "on cpu or mps", device);
}

inline void check_same_device(const char* op, const torch::stable::Tensor& t, const char* name,
                              const torch::stable::Tensor& first, const char* first_name) {
  const std::string device = device_string(t), expected = device_string(first);
  MTL4_CHECK(op, device == expected, name, std::string("on ") + first_name + "'s device " + expected, device);
}

// Resizing a storage can leave a tensor that names more memory than there is.
inline void check_storage(const char* op, const torch::stable::Tensor& t, const std::string& name) {
  if (t.numel() == 0) return;
  int64_t bytes = 0, needed = t.storage_offset() + 1;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_size(t.get(), &bytes));
  bool overflow = false;
  for (int64_t i = 0; i < t.dim(); ++i) {
    int64_t extent = 0;
    overflow |= t.size(i) > 1 && __builtin_mul_overflow(t.size(i) - 1, t.stride(i), &extent);
    overflow |= __builtin_add_overflow(needed, extent, &needed);
  }
  overflow |= __builtin_mul_overflow(needed, static_cast<int64_t>(t.element_size()), &needed);
  MTL4_CHECK(op, !overflow && needed <= bytes, name, "within its storage", std::to_string(bytes) + " bytes of storage");
}

}  // namespace mtl4
