"""Each op by way of the MPS backend on software Metal, on every tier of kernels, with views inside poisoned memory.

`pytest tests/metal --device mps` takes all tests of the kernels along the same way, which is long.
"""

import attention_harness as harness
import pytest
import torch

import torch_mtl4
from torch_mtl4 import testing

from .software_metal import on_software_metal, ops

TIERS = pytest.mark.parametrize(
    "caps", ["g13g macos14", "g17g macos26.2 tensor_ops", "g17s macos27 tensor_ops scale_planes"]
)
pytestmark = pytest.mark.usefixtures("device")


def test_every_op_that_computes_has_an_mps_implementation():
    assert ops() == ["flash_attention", "mxfp8_dequantize", "mxfp8_linear", "mxfp8_quantize"]


@TIERS
@pytest.mark.parametrize("m", [1, 40])
@pytest.mark.parametrize("bias", [True, False])
def test_mxfp8_linear(caps, m, bias):
    n, k, dtype = 70, 128, torch.float16
    weight, scale, values = testing.exact_layer(n, k)
    x, b = testing.exact_x(m, k, dtype), testing.integers(-9, 9, (n,), 4).to(dtype)
    tensors = [testing.lay_out(t, "poisoned") for t in (x, weight, scale, b)]
    with on_software_metal(caps) as gpu:
        got = torch_mtl4.mxfp8_linear(*tensors[: 4 if bias else 3])
    testing.assert_equal(got, (x.double() @ values.T + (b.double() if bias else 0)).to(dtype))
    assert gpu.dispatches


@TIERS
@pytest.mark.parametrize("scaling", ["floor", "even"])
def test_mxfp8_codecs(caps, scaling):
    x = testing.lay_out(testing.randn(3, 5, 70), "poisoned")
    data, scale = torch_mtl4.mxfp8_quantize(x, scaling=scaling)
    back = torch_mtl4.mxfp8_dequantize(data, scale, dtype=torch.bfloat16)
    with on_software_metal(caps) as gpu:
        data_there, scale_there = torch_mtl4.mxfp8_quantize(x, scaling=scaling)
        back_there = torch_mtl4.mxfp8_dequantize(data, scale, dtype=torch.bfloat16)
    for got, want in ((data_there, data), (scale_there, scale), (back_there, back)):
        testing.assert_equal(got, want)
    assert {name.rsplit("_", 1)[0] for name, _ in gpu.dispatches} == {"mxfp8_quantize", "mxfp8_dequantize"}


@TIERS
@pytest.mark.parametrize(("q_len", "kv_len"), [(40, 70), (1, 600)])
def test_flash_attention(caps, q_len, kv_len):
    case = harness.inputs(q_len, kv_len, 24, heads=4, kv_heads=2, dtype=torch.float16)
    case = [testing.lay_out(t, "poisoned") for t in case]
    visible = testing.randn(q_len, kv_len, seed=3) > -1
    options = {"attn_mask": visible, "sinks": testing.randn(4, seed=4), "softcap": 20.0, "causal": "lower_right"}
    with on_software_metal(caps) as gpu:
        harness.check(*case, **options)
        harness.check(*case)
    assert len(gpu.dispatches) >= 2


def test_gradients_go_through_mps():
    """The backward pass of the frozen weight dequantizes it, also there."""
    weight, scale, values = testing.exact_layer(5, 64)
    x = testing.exact_x(3, 64, torch.float32).requires_grad_()
    with on_software_metal("g13g macos14") as gpu:
        torch_mtl4.mxfp8_linear(x, weight, scale).sum().backward()
    testing.assert_equal(x.grad, values.sum(0).expand(3, 64).float())
    assert "mxfp8_dequantize_float" in [name for name, _ in gpu.dispatches]
