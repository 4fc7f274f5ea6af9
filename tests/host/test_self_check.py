"""The self-check at first use, on the software Metal device: all is right, or what is wrong is off and says why.

Each fault is a change of what one language's compiler makes of the text, as the kernels themselves have it: what the
self-check runs is made of the same words, so a fault is in both.
"""

import attention_harness as harness
import pytest
import torch

import torch_mtl4
from torch_mtl4 import testing

from . import software_metal as software

OLDEST, TENSOR_OPS, NEWEST = "g13g macos14", "g17g macos26.2 tensor_ops", "g17s macos27 tensor_ops scale_planes"
TIERS = {"cpu", "mps", "mps.tensor_ops", "mps.scale_planes"}
TYPES = ("float", "half", "bfloat")
CHECKS = {OLDEST: 13, TENSOR_OPS: 13 + 9, NEWEST: 13 + 9 + 5}


def of(part, types=TYPES):
    return {f"{part}_{type_}" for type_ in types}


def parts_off(status):
    return {name.removeprefix("mps.") for name in status.keys() - TIERS}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("layout", ["m5", "pre_m5", "scrambled"])
def test_every_check_passes_on_every_layout_and_in_any_order_of_threads(device, layout, shuffle):
    for caps, checks in CHECKS.items():
        gpu = device.insert(software.gpu_of(caps, layout=layout, shuffle=shuffle, seed=5))
        status = torch_mtl4.backend_status()
        assert {name for name in TIERS if status[name].available} == {
            "cpu", "mps", *(f"mps.{tier}" for tier in caps.split()[2:])
        }, status  # fmt: skip
        assert parts_off(status) == set(), status
        assert len(gpu.dispatches) == checks, "each check runs once, in one command buffer"
        assert gpu.compiled == 1 + len(caps.split()[2:]), "one library for each language"


FAULTS = {
    "a sign, a tie and lanes": (
        OLDEST,
        {
            "(code & 0x80) << 24": "(code & 0x80) << 23",
            "(1u << (bits - 1)) - 1 + (x >> bits & 1)": "(1u << (bits - 1))",
            "(quad & 2) * 2 + lane % 2 * 2": "(quad & 2) + lane % 2 * 4",
        },
        of("mxfp8_gemv") | of("mxfp8_simdgroup") | of("mxfp8_quantize") | of("flash_attention_prefill"),
    ),
    "a tie of subnormals, a format and the sum of a row": (
        OLDEST,
        {
            "(1u << (right - 1)) - 1 + (significand >> right & 1)": "(1u << (right - 1))",
            "uint(as_type<ushort>(x)) << 16": "uint(as_type<ushort>(x)) << 15",
            "return x + metal::simd_shuffle_xor(x, 8);": "return x;",
        },
        of("mxfp8_dequantize", ("half", "bfloat")) | of("mxfp8_quantize", ("bfloat",)) | of("flash_attention_prefill"),
    ),
    "a scaling mode, zero's sign and the rest of a scale": (
        OLDEST,
        {
            "mantissa > kMantissaOf448": "mantissa >= kMantissaOf448",
            "if (significand == 0) bits = 0;": "if (significand == 0) return T(0);",
            "tiles.scales.rest[across + j * 8 + place.column[e]]": "tiles.scales.rest[0]",
        },
        of("mxfp8_quantize") | of("mxfp8_dequantize") | of("mxfp8_simdgroup", ("float", "bfloat")),
    ),
    "places of a product, and a left input": (
        TENSOR_OPS,
        {
            "m0 + place[1], n0 + place[0], sums[i]": "m0 + place[0], n0 + place[1], sums[i]",
            "weights[i] = T(tile[i]);": "weights[i] = T(tile[i]) + T(1);",
        },
        of("mxfp8_tensor_ops", ("half", "bfloat")) | of("flash_attention_left_input"),
    ),
    "the rest of a scale, and weights in memory": (
        TENSOR_OPS,
        {
            "tiles.scales.rest[sums.get_multidimensional_index(i)[0]]": "tiles.scales.rest[0]",
            "memory[index[1] * kTensorKeys + index[0]] = T(": "memory[index[0] * kTensorRows + index[1]] = T(",
        },
        of("mxfp8_tensor_ops", ("bfloat",)) | of("flash_attention_weights_in_memory"),
    ),
    "the largest of a row": (
        TENSOR_OPS,
        {"reduction_operation::max, -INFINITY": "reduction_operation::max, 100.0f"},
        of("flash_attention_left_input") | of("flash_attention_weights_in_memory"),
    ),
    "the sum of a row, and a sign": (
        TENSOR_OPS,
        {"reduction_operation::sum, 0.0f": "reduction_operation::max, 0.0f", "(code & 0x80) << 24": "0"},
        None,
    ),
    "the value of a row": (
        TENSOR_OPS,
        {"*it *= *factors.map_iterator(it)": "*it *= *factors.begin()"},
        of("flash_attention_left_input") | of("flash_attention_weights_in_memory"),
    ),
    "a product that starts with what was there": (
        TENSOR_OPS,
        {"    fill(tile, 0);\n": "", "mode::multiply);": "mode::multiply_accumulate);"},
        of("flash_attention_left_input") | of("flash_attention_weights_in_memory"),
    ),
    "scales of other rows": (NEWEST, {"ScalePlane(scale + n0 * p.scale_stride)": "ScalePlane(scale)"}, None),
    "another format": (NEWEST, {"device metal_fp8_e4m3_format": "device metal_fp8_e5m2_format"}, None),
    "the first step again": (NEWEST, {"right.slice(from, 0)": "right.slice(0, 0)"}, None),
    "a row that halves do not hold": (
        NEWEST, {"low - 127 + up >= kLowest": "low - 127 + up >= kLowest - 1"}, of("mxfp8_scale_planes", ("bfloat",))
    ),
}  # fmt: skip
LANGUAGES = {OLDEST: (3, 1), TENSOR_OPS: (4, 0), NEWEST: (4, 1)}


def with_fault(device, fault):
    caps, edits, off = FAULTS[fault]
    gpu = software.gpu_of(caps)
    gpu.edits, gpu.edited = edits, LANGUAGES[caps]
    return device.insert(gpu), caps, off


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_switches_off_what_depends_on_it_and_says_why(device, fault):
    _, caps, off = with_fault(device, fault)
    status = torch_mtl4.backend_status()
    newest_tier = f"mps.{caps.split()[-1]}"
    assert parts_off(status) == (off or set()), status
    for part in off or ():
        assert "elements are wrong, the first at" in status[f"mps.{part}"].detail
    if off is None:  # nothing of the tier is right
        assert not status[newest_tier].available and "elements are wrong, the first at" in status[newest_tier].detail
    elif caps != OLDEST:
        assert status[newest_tier].available
    if caps == NEWEST:
        assert status["mps.tensor_ops"].available


PLACE = "    const auto place = sums.get_multidimensional_index(i);\n    store_with_bias(out, bias, p, m0 + place[1]"
PLACE_ON_M5 = """
    const int lane = int(thread_index) & 31, fragment = int(thread_index) / 32 * 2 + i / 8, quad = lane >> 2;
    const int place[] = {fragment % 4 * 16 + ((quad & 2) | (lane & 1)) * 4 + (i & 3),
                         fragment / 4 * 16 + ((quad & 4) | (lane >> 1 & 3)) + 8 * (i >> 2 & 1)};
    store_with_bias(out, bias, p, m0 + place[1]"""


@pytest.mark.parametrize("layout", ["m5", "pre_m5", "scrambled"])
def test_code_that_takes_its_lanes_for_granted_is_off_where_they_are_others(device, layout):
    gpu = software.gpu_of(TENSOR_OPS, layout=layout)
    gpu.edits, gpu.edited = {PLACE: PLACE_ON_M5}, (4, 0)
    device.insert(gpu)
    status = torch_mtl4.backend_status()
    assert parts_off(status) == (set() if layout == "m5" else of("mxfp8_tensor_ops", ("half", "bfloat"))), status
    assert status["mps.tensor_ops"].available


def test_a_kernel_that_does_not_build_costs_what_needs_it(device):
    gpu = software.gpu_of(NEWEST)
    gpu.refused = frozenset({"self_check_tensor_ops_half", "self_check_narrow", "self_check_fragments_float"})
    device.insert(gpu)
    status = torch_mtl4.backend_status()
    assert parts_off(status) == {
        "mxfp8_tensor_ops_half", "mxfp8_scale_planes_bfloat", "flash_attention_prefill_float"
    }  # fmt: skip
    assert "this GPU does not take self_check_narrow" in status["mps.mxfp8_scale_planes_bfloat"].detail


def test_a_check_that_faults_spoils_no_other(device):
    """A missing barrier: the finding ends the command buffer, and each check is run again alone."""
    gpu = software.gpu_of(NEWEST)
    gpu.edits, gpu.edited = {
        "    range.high[thread_index / 32] = high;\n  }\n  threadgroup_barrier(mem_flags::mem_threadgroup);":
        "    range.high[thread_index / 32] = high;\n  }"
    }, (4, 1)  # fmt: skip
    device.insert(gpu)
    status = torch_mtl4.backend_status()
    assert parts_off(status) == of("mxfp8_scale_planes", ("bfloat",))
    assert "race" in status["mps.mxfp8_scale_planes_bfloat"].detail


def attention(dtype=torch.float16):
    return [t.to("mps") for t in harness.inputs(40, 70, 24, heads=2, dtype=dtype)]


def kernels(gpu):
    return [name for name, _ in gpu.dispatches]


def test_attention_without_a_left_input_goes_by_way_of_memory(device):
    gpu, _, _ = with_fault(device, "places of a product, and a left input")
    case = attention()
    torch_mtl4.backend_status()
    gpu.dispatches.clear()
    out = torch_mtl4.flash_attention(*case).cpu()
    assert kernels(gpu) == ["flash_attention_tensor_ops_half_64"]
    want = torch_mtl4.flash_attention(*(t.cpu() for t in case))
    testing.assert_close(out, want, testing.allowed_error(0, want, torch.float16))


def test_attention_without_rows_and_products_without_places_run_on_simdgroup_matrix(device):
    gpu, _, _ = with_fault(device, "the sum of a row, and a sign")
    case = attention()
    weight, scale, values = testing.exact_layer(70, 128)
    x = testing.exact_x(40, 128, torch.float16)
    torch_mtl4.backend_status()
    gpu.dispatches.clear()
    out = torch_mtl4.flash_attention(*case).cpu()
    want = torch_mtl4.flash_attention(*(t.cpu() for t in case))
    testing.assert_close(out, want, testing.allowed_error(0, want, torch.float16))
    got = torch_mtl4.mxfp8_linear(*(t.to("mps") for t in (x, weight, scale))).cpu()
    testing.assert_equal(got, (x.double() @ values.T).half())
    assert kernels(gpu) == ["flash_attention_prefill_half_64_64", "mxfp8_simdgroup_64_half"]


def test_an_op_whose_only_kernels_fail_says_so(device):
    gpu, _, _ = with_fault(device, "a sign, a tie and lanes")
    weight, scale = (t.to("mps") for t in testing.exact_layer(70, 128)[:2])
    for m, family in ((1, "gemv"), (40, "simdgroup")):
        x = testing.exact_x(m, 128, torch.float16).to("mps")
        text = f"mxfp8_linear: expected a GPU that passes the self-check of mxfp8_{family}_half, got one that failed it"
        with pytest.raises(RuntimeError, match=text):
            torch_mtl4.mxfp8_linear(x, weight, scale)
    with pytest.raises(RuntimeError, match="self-check of mxfp8_quantize_half"):
        torch_mtl4.mxfp8_quantize(x)
    with pytest.raises(RuntimeError, match="self-check of flash_attention_prefill_half"):
        torch_mtl4.flash_attention(*attention())
    gpu.dispatches.clear()
    torch_mtl4.mxfp8_dequantize(weight, scale, dtype=torch.float16)
    assert kernels(gpu) == ["mxfp8_dequantize_half"]
