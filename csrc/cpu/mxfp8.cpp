// CPU implementations of the mxfp8 ops: contract, allocation, choice of instruction set.
#include "ops/mxfp8.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "cpu/kernels/dispatch.h"
#include "cpu/kernels/mxfp8.h"
#include "ops/shape.h"

namespace mtl4::cpu {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

const uint8_t* bytes(const Tensor& t) { return static_cast<const uint8_t*>(t.const_data_ptr()); }
uint8_t* mutable_bytes(const Tensor& t) { return static_cast<uint8_t*>(t.mutable_data_ptr()); }

std::tuple<Tensor, Tensor> mxfp8_quantize(const Tensor& x, std::string scaling) {
  const Mxfp8CodecProblem p = check_mxfp8_quantize(x, scaling);
  const Tensor dense = torch::stable::contiguous(x);
  Tensor data = torch::stable::new_empty(x, with_last(x, p.k), ScalarType::Byte);
  Tensor scale = torch::stable::new_empty(x, with_last(x, p.blocks()), ScalarType::Byte);
  if (p.rows * p.k > 0)
    MTL4_DISPATCH_ISA(mxfp8_quantize, p, dense.const_data_ptr(), mutable_bytes(data), mutable_bytes(scale));
  return {data, scale};
}

Tensor mxfp8_dequantize(const Tensor& data, const Tensor& scale, ScalarType dtype) {
  const Mxfp8CodecProblem p = check_mxfp8_dequantize(data, scale, dtype);
  const Tensor dense_data = torch::stable::contiguous(data), dense_scale = torch::stable::contiguous(scale);
  Tensor out = torch::stable::new_empty(data, with_last(data, p.k), dtype);
  if (p.rows * p.k > 0)
    MTL4_DISPATCH_ISA(mxfp8_dequantize, p, bytes(dense_data), bytes(dense_scale), out.mutable_data_ptr());
  return out;
}

Tensor mxfp8_linear(const Tensor& x, const Tensor& weight_, const Tensor& weight_scale_, std::optional<Tensor> bias) {
  check_mxfp8_linear(x, weight_, weight_scale_, bias);
  const Tensor weight = rows_dense(weight_), weight_scale = rows_dense(weight_scale_);
  const Mxfp8LinearProblem p = check_mxfp8_linear(x, weight, weight_scale, bias);
  const Tensor dense_x = torch::stable::contiguous(x);
  Tensor out = torch::stable::new_empty(x, with_last(x, p.n));
  if (p.m * p.n > 0)
    MTL4_DISPATCH_ISA(mxfp8_linear, p, dense_x.const_data_ptr(), bytes(weight), bytes(weight_scale),
                      bias ? bias->const_data_ptr() : nullptr, out.mutable_data_ptr());
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(torch_mtl4, CPU, m) {
  m.impl("mxfp8_quantize", TORCH_BOX(&mxfp8_quantize));
  m.impl("mxfp8_dequantize", TORCH_BOX(&mxfp8_dequantize));
  m.impl("mxfp8_linear", TORCH_BOX(&mxfp8_linear));
}

}  // namespace mtl4::cpu
