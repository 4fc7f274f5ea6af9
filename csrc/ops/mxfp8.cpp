#include "mxfp8.h"

#include "check.h"

namespace mtl4 {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

int64_t blocks_of(int64_t k) { return (k + kMxBlock - 1) / kMxBlock; }

void check_bytes(const char* op, const Tensor& t, const char* name) {
  check_storage(op, t, name);
  MTL4_CHECK(op, t.scalar_type() == ScalarType::Byte, name, "of dtype uint8", dtype_string(t.scalar_type()));
}

// An empty tensor may have other sizes whose product no integer holds; it has no rows to work on.
int64_t rows_of(const Tensor& t) {
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < t.dim(); ++i) {
    if (__builtin_mul_overflow(rows, t.size(i), &rows)) return 0;
  }
  return rows;
}

void check_scale_shape(const char* op, const Tensor& data, const Tensor& scale, const char* name) {
  bool ok = scale.dim() == data.dim() && scale.size(scale.dim() - 1) == blocks_of(data.size(data.dim() - 1));
  for (int64_t i = 0; ok && i + 1 < data.dim(); ++i) ok = data.size(i) == scale.size(i);
  MTL4_CHECK(op, ok, name, "[..., ceil(K/32)] of " + shape_string(data), shape_string(scale));
}

}  // namespace

Mxfp8CodecProblem check_mxfp8_quantize(const Tensor& x, const std::string& scaling) {
  constexpr const char* op = "mxfp8_quantize";
  check_device(op, x, "x");
  check_storage(op, x, "x");
  MTL4_CHECK(op, is_float(x.scalar_type()), "x", "of dtype float32, bfloat16 or float16",
             dtype_string(x.scalar_type()));
  MTL4_CHECK(op, x.dim() >= 1, "x", "with at least 1 dimension", shape_string(x));
  Mxfp8CodecProblem p{x.scalar_type(), rows_of(x), x.size(x.dim() - 1)};
  if (scaling == "floor")
    p.scaling = ScalingMode::floor;
  else if (scaling == "rceil")
    p.scaling = ScalingMode::rceil;
  else if (scaling == "ceil")
    p.scaling = ScalingMode::ceil;
  else {
    MTL4_CHECK(op, scaling == "even", "scaling", "'floor', 'rceil', 'ceil' or 'even'", "'" + scaling + "'");
    p.scaling = ScalingMode::even;
  }
  return p;
}

Mxfp8CodecProblem check_mxfp8_dequantize(const Tensor& data, const Tensor& scale, ScalarType dtype) {
  constexpr const char* op = "mxfp8_dequantize";
  check_device(op, data, "data");
  check_bytes(op, data, "data");
  check_same_device(op, scale, "scale", data, "data");
  check_bytes(op, scale, "scale");
  MTL4_CHECK(op, is_float(dtype), "dtype", "float32, bfloat16 or float16", dtype_string(dtype));
  MTL4_CHECK(op, data.dim() >= 1, "data", "with at least 1 dimension", shape_string(data));
  check_scale_shape(op, data, scale, "scale");
  return {dtype, rows_of(data), data.size(data.dim() - 1)};
}

Mxfp8LinearProblem check_mxfp8_linear(const Tensor& x, const Tensor& weight, const Tensor& weight_scale,
                                      const std::optional<Tensor>& bias) {
  constexpr const char* op = "mxfp8_linear";
  check_device(op, x, "x");
  check_storage(op, x, "x");
  check_same_device(op, weight, "weight", x, "x");
  check_bytes(op, weight, "weight");
  check_same_device(op, weight_scale, "weight_scale", x, "x");
  check_bytes(op, weight_scale, "weight_scale");
  MTL4_CHECK(op, is_float(x.scalar_type()), "x", "of dtype float32, bfloat16 or float16",
             dtype_string(x.scalar_type()));
  MTL4_CHECK(op, x.dim() >= 1, "x", "with at least 1 dimension", shape_string(x));
  MTL4_CHECK(op, weight.dim() == 2, "weight", "[N, K]", shape_string(weight));
  MTL4_CHECK(op, weight.size(1) == x.size(x.dim() - 1), "weight",
             "[N, K] with K = " + std::to_string(x.size(x.dim() - 1)), shape_string(weight));
  check_scale_shape(op, weight, weight_scale, "weight_scale");
  Mxfp8LinearProblem p{x.scalar_type(), rows_of(x),       weight.size(0),
                       weight.size(1),  weight.stride(0), weight_scale.stride(0)};
  if (bias) {
    check_same_device(op, *bias, "bias", x, "x");
    check_storage(op, *bias, "bias");
    MTL4_CHECK(op, bias->scalar_type() == p.dtype, "bias", "of x's dtype " + dtype_string(p.dtype),
               dtype_string(bias->scalar_type()));
    MTL4_CHECK(op, bias->dim() == 1 && bias->size(0) == p.n, "bias", "[N] = [" + std::to_string(p.n) + "]",
               shape_string(*bias));
    p.bias_stride = bias->stride(0);
  }
  p.weight_offset = weight.storage_offset();
  p.weight_scale_offset = weight_scale.storage_offset();
  return p;
}

}  // namespace mtl4
