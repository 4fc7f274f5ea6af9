#include "plan/mxfp8_quantize.h"

#include "mxfp8_quantize/params.h"
#include "plan/mxfp8_codec.h"

namespace mtl4 {
namespace {

int32_t scaling_constant(ScalingMode mode) {
  switch (mode) {
    case ScalingMode::floor:
      return kMxfp8ScalingFloor;
    case ScalingMode::rceil:
      return kMxfp8ScalingRceil;
    case ScalingMode::ceil:
      return kMxfp8ScalingCeil;
    default:
      return kMxfp8ScalingEven;
  }
}

}  // namespace

KernelPlan plan_mxfp8_quantize(const Mxfp8CodecProblem& p, const DeviceCaps& caps) {
  caps.need("mxfp8_quantize", "mxfp8_quantize", type_name(p.dtype));
  KernelPlan plan{"mxfp8_quantize", Language::metal3_1, {}, {}};
  const Pass pass{.kernel = "mxfp8_quantize_" + type_name(p.dtype),
                  .constants = {{0, "scaling", false, scaling_constant(p.scaling)}},
                  .arguments = {{0, "x"}, {1, "data"}, {2, "scale"}},
                  .params_index = 3,
                  .params = {},
                  .groups = {},
                  .threads = {}};
  add_codec_passes<Mxfp8QuantizeParams>(p, 4, pass, plan);
  return plan;
}

}  // namespace mtl4
