"""Loads the built library into whichever torch runs this script, and checks every op against plain PyTorch.

The library is built once, against the oldest torch that the package supports, and must work in later ones:
`PYTHONPATH=. python tests/abi_smoke.py`, with the python of an environment that has the other torch.
"""

import math

import torch
import torch.nn.functional as F

import torch_mtl4
from torch_mtl4 import _ops


def check_codec():
    x = torch.randn(5, 70)
    data, scale = torch_mtl4.mxfp8_quantize(x)
    assert data.dtype == scale.dtype == torch.uint8 and data.shape == (5, 70) and scale.shape == (5, 3)
    values = data.view(torch.float8_e4m3fn).float()
    values *= scale.view(torch.float8_e8m0fnu).float().repeat_interleave(32, 1)[:, :70]
    assert torch.equal(torch_mtl4.mxfp8_dequantize(data, scale, dtype=torch.float32), values)
    assert ((x - values).abs() <= 2**-4 * x.abs() + 2**-9).all()


def check_linear():
    weight, scale = torch_mtl4.mxfp8_quantize(torch.randn(33, 96))
    dense = torch_mtl4.mxfp8_dequantize(weight, scale, dtype=torch.float32).double()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for rows in (1, 3, 40):
            x, bias = torch.randn(rows, 96).to(dtype), torch.randn(33).to(dtype)
            out = torch_mtl4.mxfp8_linear(x, weight, scale, bias)
            want = F.linear(x.double(), dense, bias.double())
            assert out.dtype == dtype and (out - want).abs().max() <= 4 * torch.finfo(dtype).eps * want.abs().max()
    x = torch.randn(2, 96, requires_grad=True)
    torch_mtl4.mxfp8_linear(x, weight, scale).sum().backward()
    assert torch.allclose(x.grad, dense.float().sum(0).expand(2, 96), atol=1e-4)


def check_attention():
    query, key, value = torch.randn(2, 4, 9, 16), torch.randn(2, 2, 13, 16), torch.randn(2, 2, 13, 16)
    out = torch_mtl4.flash_attention(query, key, value)
    want = F.scaled_dot_product_attention(query.double(), key.double(), value.double(), enable_gqa=True)
    assert (out - want).abs().max() < 1e-5


def check_errors_and_strings():
    # Exceptions and strings cross the border of the ABI by other ways than tensors do.
    try:
        _ops.mxfp8_quantize(torch.ones(32), "nearest")
    except RuntimeError as error:
        assert "mxfp8_quantize: expected scaling 'floor', 'rceil', 'ceil' or 'even', got 'nearest'" in str(error)
    else:
        raise AssertionError("an unknown scaling was accepted")
    assert torch_mtl4.mxfp8_quantize(torch.full((32,), math.nan))[1].item() == 255


def main():
    torch.manual_seed(0)
    checks = (check_codec, check_linear, check_attention, check_errors_and_strings)
    for check in checks:
        check()
    print(f"torch {torch.__version__}: {len(checks)} checks of {_ops.LIBRARY_PATH} passed")


if __name__ == "__main__":
    main()
