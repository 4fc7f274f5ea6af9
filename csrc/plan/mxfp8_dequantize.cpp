#include "plan/mxfp8_dequantize.h"

#include "mxfp8_dequantize/params.h"
#include "plan/mxfp8_codec.h"

namespace mtl4 {

KernelPlan plan_mxfp8_dequantize(const Mxfp8CodecProblem& p, const DeviceCaps& caps) {
  caps.need("mxfp8_dequantize", "mxfp8_dequantize", type_name(p.dtype));
  KernelPlan plan{"mxfp8_dequantize", Language::metal3_1, {}, {}};
  const Pass pass{.kernel = "mxfp8_dequantize_" + type_name(p.dtype),
                  .constants = {},
                  .arguments = {{0, "data"}, {1, "scale"}, {2, "out"}},
                  .params_index = 3,
                  .params = {},
                  .groups = {},
                  .threads = {}};
  add_codec_passes<Mxfp8DequantizeParams>(p, 8, pass, plan);
  return plan;
}

}  // namespace mtl4
