"""A tier has its features and no others; the use of an absent one names the tier that has it."""

import numpy as np
import pytest

from torch_mtl4 import msl
from torch_mtl4.msl.tiers import find_tier

from .test_rules import check

HEAD = """
#include <metal_stdlib>
#include <metal_tensor>
#include <metal_packed_numeric>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
"""
MACROS = {
    "__METAL_VERSION__ == 310": {"macos14"},
    "__METAL_VERSION__ == 320": {"macos15"},
    "__METAL_VERSION__ == 400": {"macos26.0", "macos26.1", "macos26.2", "macos26.4"},
    "__METAL_VERSION__ == 410": {"macos27"},
    "defined(__HAVE_BFLOAT__)": set(msl.TIERS),
    "defined(__HAVE_TENSOR__)": {"macos26.0", "macos26.1", "macos26.2", "macos26.4", "macos27"},
    "defined(__HAVE_EXECUTION_UNIT__)": {"macos26.0", "macos26.1", "macos26.2", "macos26.4", "macos27"},
    "defined(__HAVE_INT4B_FORMAT_TYPE__)": {"macos26.4", "macos27"},
    "defined(__HAVE_INT2B_FORMAT_TYPE__)": {"macos27"},
    "defined(__HAVE_TENSOR_MULTIPLANE__)": {"macos27"},
    "defined(__HAVE_METAL_FP8_E4M3_FORMAT_TYPE__)": {"macos27"},
    "defined(__HAVE_PACKED_NUMERIC_TYPE_PACK_UNPACK__)": {"macos27"},
    "defined(__TENSOR_OPS_SUPPORT_DEPLOYMENT_TARGET_26_2__)": set(),
    "defined(__TENSOR_OPS_SUPPORT_DEPLOYMENT_TARGET_26_2)": {"macos26.2", "macos26.4", "macos27"},
    "__ENVIRONMENT_OS_VERSION_MIN_REQUIRED__ >= 260200": {"macos26.2", "macos26.4", "macos27"},
}


@pytest.mark.parametrize("tier", msl.TIERS)
def test_macros(tier):
    tests = "\n".join(f"#if {condition}\nout[{i}] = 1;\n#endif" for i, condition in enumerate(MACROS))
    lib = msl.compile(f"{HEAD}kernel void k(device int* out [[buffer(0)]]) {{\n{tests}\n}}", tier=tier, checked=False)
    out = np.zeros(len(MACROS), np.int32)
    lib.kernel("k").dispatch(1, 1, [out])
    assert {c for c, has in zip(MACROS, out, strict=True) if has} == {c for c, tiers in MACROS.items() if tier in tiers}


def test_an_older_language_on_a_newer_system():
    assert find_tier("macos27:4.0").metal_version == 400
    source = f"{HEAD}kernel void k(device uchar* p [[buffer(0)]]) {{ metal_fp8_e4m3_format* x = 0; p[0] = x == 0; }}"
    assert "needs MSL 4.1 (macOS 27.0); the tier is macos27 with MSL 4.0" in check(source, "macos27:4.0")[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("macos25", "expected tier to be one of"),
        ("macos26.0:4.1", "expected the language of macos26.0 to be one of 3.1, 3.2, 4.0, got '4.1'"),
    ],
)
def test_unknown_tiers(name, message):
    with pytest.raises(ValueError, match=message):
        msl.compile("kernel void k() {}", tier=name)


TENSOR = "tensor<device half, dextents<int, 2>, tensor_inline> t((device half*)p, dextents<int, 2>(16, 16));"
INPUT = """
    constexpr auto d = mpp::tensor_ops::matmul2d_descriptor(16, 32, 16);
    mpp::tensor_ops::matmul2d<d, execution_simdgroup> op;
    auto l = op.get_left_input_cooperative_tensor<half, half, float>();
"""
COPY = (
    TENSOR
    + """
    constexpr auto d = mpp::tensor_ops::matmul2d_descriptor(16, 32, 16);
    mpp::tensor_ops::matmul2d<d, execution_simdgroup> op;
    auto a = op.get_destination_cooperative_tensor<decltype(t), decltype(t), float>();
    auto b = a;
"""
)
ABSENT = [
    (TENSOR, "macos15", "needs MSL 4.0 (macOS 26.0); the tier is macos15 with MSL 3.2"),
    ("mpp::tensor_ops::matmul2d_descriptor d(16, 16);", "macos15", "needs MSL 4.0 (macOS 26.0)"),
    ("packed_numeric_type<int4b_format, 8> x;", "macos26.2", "needs MSL 4.0 and macOS 26.4"),
    ("metal_fp4_e2m1_format* x = 0;", "macos26.4", "needs MSL 4.1 (macOS 27.0)"),
    ("uint2b_format* x = 0;", "macos26.4", "needs MSL 4.1 (macOS 27.0)"),
    ("p[0] = unpack<float>(packed_uint4b<8>())[0];", "macos26.4", "needs MSL 4.1 (macOS 27.0)"),
    (TENSOR + "p[0] = t.get_stride_bytes(1);", "macos26.4", "needs MSL 4.1 (macOS 27.0)"),
    ("tensor_blockwise<tensor_plane_scales, device uchar, 32, 1>* x = 0;", "macos26.4", "needs MSL 4.1 (macOS 27.0)"),
    (INPUT, "macos26.1", "cooperative inputs need macOS 26.2; the tier is macos26.1 with MSL 4.0"),
    (COPY, "macos26.4", "copies of cooperative tensors need macOS 27.0"),
    ('os_log_default.log("x");', "macos14", "needs MSL 3.2 (macOS 15)"),
]


@pytest.mark.parametrize(("body", "tier", "message"), ABSENT)
def test_absent_features_name_the_tier_that_has_them(body, tier, message):
    source = f"{HEAD}kernel void k(device uchar* p [[buffer(0)]]) {{ {body} }}"
    accepted, diagnostics = check(source, tier)
    assert not accepted
    assert message in diagnostics
    if "tensor_blockwise" not in body:
        assert check(source)[0]
