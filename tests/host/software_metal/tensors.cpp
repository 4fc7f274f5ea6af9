// Tensors of the device "mps" in torch for Linux: memory, views and copies. Their storage's data pointer is the
// MTLBuffer, as on a Mac.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "interface.h"

namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
const c10::Device kDevice(c10::kMPS, 0);

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &software_metal_release, kDevice};
    void* const buffer = software_metal_new_buffer(bytes);
    return {buffer, buffer, &software_metal_release, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &software_metal_release; }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false, "not on this device"); }
} allocator;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kMPS; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(MPS, Guard)

// The same memory as a CPU tensor.
Tensor on_cpu(const Tensor& t) {
  if (t.is_cpu()) return t;
  if (t.numel() == 0) return at::empty(t.sizes(), at::TensorOptions().dtype(t.scalar_type()));
  char* const memory = software_metal_contents(t.storage().mutable_data());
  return at::from_blob(memory + t.storage_offset() * t.element_size(), t.sizes(), t.strides(),
                       at::TensorOptions().dtype(t.scalar_type()));
}

at::ScalarType known(std::optional<at::ScalarType> dtype) {
  TORCH_CHECK_TYPE(dtype != at::kDouble, "the MPS framework doesn't support float64");
  return dtype.value_or(at::kFloat);
}

Tensor empty(SymIntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), &allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::MPS), known(dtype), format);
}

Tensor empty_strided(SymIntArrayRef sizes, SymIntArrayRef strides, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::MPS), known(dtype));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

Tensor& copy_(Tensor& to, const Tensor& from, bool) {
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

Tensor& fill_(Tensor& t, const at::Scalar& value) {
  on_cpu(t).fill_(value);
  return t;
}

Tensor as_strided(const Tensor& t, SymIntArrayRef sizes, SymIntArrayRef strides, std::optional<SymInt> offset) {
  auto view =
      at::detail::make_tensor<at::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(t.storage()), t.key_set(), t.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
                                                    offset ? offset->expect_int() : t.storage_offset());
  return view;
}

Tensor view(const Tensor& t, SymIntArrayRef sizes) {
  const Tensor like = on_cpu(t).view_symint(sizes);
  return as_strided(t, like.sym_sizes(), like.sym_strides(), t.sym_storage_offset());
}

Tensor reshape_alias(const Tensor& t, SymIntArrayRef sizes, SymIntArrayRef strides) {
  return as_strided(t, sizes, strides, t.sym_storage_offset());
}

at::Scalar local_scalar_dense(const Tensor& t) { return on_cpu(t).item(); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, MPS, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("copy_", &copy_);
  m.impl("fill_.Scalar", &fill_);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("_local_scalar_dense", &local_scalar_dense);
}
