// What a plan needs to know of a GPU and its system. Found out by csrc/runtime on a Mac, written down by tests
// elsewhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mtl4 {

struct DeviceCaps {
  int generation = 13;  // of the GPU's architecture: 13 is M1, 17 is M5
  char size = 'g';      // its letter: g base, s Pro or Max, d Ultra, p phone (as Metal's architecture names end)
  int macos_major = 14, macos_minor = 0;
  bool tensor_ops = false;    // pipelines with matmul2d into cooperative tensors build, and pass their self-check
  bool scale_planes = false;  // so do those with fp8 operands that have a plane of scales
  // Parts that failed their self-check, of whatever tier: a family of kernels, or a way that one of them can take, and
  // the type that it is for ("mxfp8_tensor_ops_half"). kParts of device_caps.cpp lists them.
  std::vector<std::string> without = {};

  bool works(std::string_view part, std::string_view type) const;
  // Throws std::runtime_error for a part that does not.
  void need(std::string_view op, std::string_view part, std::string_view type) const;

  // Matrix units inside the GPU's cores, which only matmul2d reaches. Without them it computes the same, but slower
  // than simdgroup_matrix. Source: MLX, mlx/backend/metal/device.cpp (17 and up; phones from 18 on).
  bool matrix_units() const { return generation >= (size == 'p' ? 18 : 17); }

  // The most that the letter stands for. Source: Apple's specifications of M1 to M5 (2026-11).
  int cores() const { return size == 'd' ? 80 : size == 's' ? 40 : size == 'p' ? 6 : 10; }
};

// The caps of "g17s macos26.2 tensor_ops -mxfp8_tensor_ops_half": an architecture, a system, and the words that apply,
// those of `without` behind a minus.
// Throws std::invalid_argument.
DeviceCaps parse_device_caps(std::string_view text);
std::string to_string(const DeviceCaps& caps);

}  // namespace mtl4
