// What tests and diagnosis want to know of the machine. Knows neither torch nor the ops.
#include <pybind11/pybind11.h>

#include <string>

#include "cpu/isa.h"

PYBIND11_MODULE(_native, m) {
  m.doc() = "Facts about the native code: which instruction set the CPU kernels use.";
  m.def(
      "cpu_isa", [] { return std::string(mtl4::cpu::isa_name(mtl4::cpu::isa())); },
      "Name of the instruction set that the CPU kernels use on this machine.");
}
