"""Plans for a GPU that failed a part of its self-check: what runs instead, or which error there is."""

import json

import pytest
import torch

from torch_mtl4 import _ops

TENSOR_OPS, NEWEST = "g17s macos26.2 tensor_ops", "g17s macos27 tensor_ops scale_planes"
HALF, BFLOAT, FLOAT = torch.float16, torch.bfloat16, torch.float32


def linear(caps, m=40, dtype=HALF):
    weight, scale = torch.empty(64, 128, dtype=torch.uint8), torch.empty(64, 4, dtype=torch.uint8)
    steps = json.loads(_ops.mxfp8_linear_plan(torch.empty(m, 128, dtype=dtype), weight, scale, None, caps))["passes"]
    return [step["kernel"].removeprefix("mxfp8_") for step in steps]


def attention(caps, dtype=HALF, q_len=40):
    case = (torch.empty(1, 2, q_len, 64, dtype=dtype), *(torch.empty(1, 2, 70, 64, dtype=dtype),) * 2)
    plan = _ops.flash_attention_plan(*case, None, None, -1, -1, None, None, None, None, caps)
    step = json.loads(plan)["passes"][0]
    constants = {name: value for _, name, value in step["constants"]}
    return step["kernel"].removeprefix("flash_attention_"), constants["weights_in_memory"]


def test_mxfp8_linear_takes_the_next_tier_that_works():
    assert linear(NEWEST) == ["scale_planes_64_half"]
    assert linear(NEWEST + " -mxfp8_scale_planes_half") == ["tensor_ops_64_half"]
    assert linear(NEWEST + " -mxfp8_scale_planes_half -mxfp8_tensor_ops_half") == ["simdgroup_64_half"]
    assert linear(NEWEST + " -mxfp8_scale_planes_half", dtype=BFLOAT)[1] == "scale_planes_64_bfloat"
    assert linear(TENSOR_OPS + " -mxfp8_tensor_ops_bfloat") == ["tensor_ops_64_half"]


def test_matmul2d_serves_where_simdgroup_matrix_fails():
    assert linear("g13g macos26.2 tensor_ops") == ["simdgroup_64_half"]
    assert linear("g13g macos26.2 tensor_ops -mxfp8_simdgroup_half") == ["tensor_ops_64_half"]
    assert attention("g13g macos26.2 tensor_ops") == ("prefill_half_64_64", False)
    assert attention("g13g macos26.2 tensor_ops -flash_attention_prefill_half") == ("tensor_ops_half_64", False)


def test_attention_without_a_left_input_takes_memory_and_without_both_simdgroup_matrix():
    left, memory = " -flash_attention_left_input_half", " -flash_attention_weights_in_memory_half"
    assert attention(TENSOR_OPS + left) == ("tensor_ops_half_64", True)
    assert attention(TENSOR_OPS + memory) == ("tensor_ops_half_64", False)
    assert attention(TENSOR_OPS + left + memory)[0] == "prefill_half_64_64"
    assert attention(TENSOR_OPS + left + memory, BFLOAT) == ("tensor_ops_bfloat_64", False)


NOTHING_ELSE = {
    "mxfp8_gemv_half": lambda caps: linear(caps, m=1),
    "mxfp8_simdgroup_float": lambda caps: linear(caps, dtype=FLOAT),
    "mxfp8_quantize_bfloat": lambda caps: _ops.mxfp8_quantize_plan(torch.zeros(1, 32, dtype=BFLOAT), "rceil", caps),
    "mxfp8_dequantize_half": lambda caps: _ops.mxfp8_dequantize_plan(
        torch.zeros(1, 32, dtype=torch.uint8), torch.zeros(1, 1, dtype=torch.uint8), HALF, caps
    ),
    "flash_attention_prefill_half": attention,
}


@pytest.mark.parametrize("part", NOTHING_ELSE)
def test_where_there_is_nothing_else_the_error_names_the_part(part):
    call = NOTHING_ELSE[part]
    assert call("g13g macos14")
    with pytest.raises(
        RuntimeError, match=rf": expected a GPU that passes the self-check of {part}, got one that failed"
    ):
        call(f"g13g macos14 -{part}")
    other = part.rsplit("_", 1)[0] + ("_half" if not part.endswith("half") else "_float")
    assert call(f"g13g macos14 -{other}")
