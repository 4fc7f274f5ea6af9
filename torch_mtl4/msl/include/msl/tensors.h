// Tensors and MetalPerformancePrimitives, or, before MSL 4.0, their names alone with the reason why they are not there.
#pragma once
#include "tier.h"
#if MSL_HAS(400, 2600)
#include "cooperative_tensor.h"
#include "matmul2d.h"
#include "reduce.h"
#include "tensor.h"
#else
#include "scalar.h"
namespace metal {
template <class...> struct MSL_SINCE_26 tensor;
template <class...> struct MSL_SINCE_26 cooperative_tensor;
template <class, size_t...> struct MSL_SINCE_26 extents;
template <class, size_t> struct MSL_SINCE_26 dextents;
struct MSL_SINCE_26 tensor_handle;
struct MSL_SINCE_26 tensor_inline;
struct MSL_SINCE_26 execution_thread;
struct MSL_SINCE_26 execution_simdgroup;
template <int> struct MSL_SINCE_26 execution_simdgroups;
} // namespace metal
namespace mpp::tensor_ops {
struct MSL_SINCE_26 matmul2d_descriptor;
template <auto, class, class...> struct MSL_SINCE_26 matmul2d;
} // namespace mpp::tensor_ops
#endif
