"""The checks: every op on small inputs against its reference, on a device of the user's.

The references compute on the CPU, in float64 where the op rounds. They are what the tests of the package use, and so is
the tolerance (torch_mtl4/testing.py).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F

import torch_mtl4
from torch_mtl4 import testing
from torch_mtl4.reference.flash_attention import flash_attention as attention_reference
from torch_mtl4.reference.mxfp8 import mxfp8_dequantize as dequantize_reference
from torch_mtl4.reference.mxfp8 import mxfp8_quantize as quantize_reference

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SCALINGS = ("floor", "rceil", "ceil", "even")


class Check(NamedTuple):
    """`run(device)` raises where the result is wrong."""

    name: str
    run: Callable[[str], None]


class AttentionCase(NamedTuple):
    """Sizes, and the options of the call."""

    name: str
    q_len: int
    kv_len: int
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    v_head_dim: int = 64
    options: dict = {}  # noqa: RUF012


ATTENTION = (
    AttentionCase("full", 70, 100),
    AttentionCase("causal", 100, 100, options={"causal": "upper_left"}),
    AttentionCase("prefill behind a cache", 33, 300, options={"causal": "lower_right"}),
    AttentionCase("decode", 1, 1000, heads=8, head_dim=128, v_head_dim=128),
    AttentionCase("few rows", 5, 600, options={"causal": "lower_right", "window": (100, 0)}),
    AttentionCase("window", 90, 90, options={"window": (16, 8)}),
    AttentionCase("odd sizes", 37, 67, head_dim=80, v_head_dim=40),
    AttentionCase("one key", 3, 1, head_dim=8, v_head_dim=8),
    AttentionCase("soft cap", 64, 64, options={"softcap": 5.0, "causal": "upper_left"}),
    AttentionCase("sinks and ALiBi", 40, 50, options={"sinks": (4,), "alibi_slopes": (4,)}),
    AttentionCase("bool mask", 40, 50, options={"attn_mask": (1, 1, 40, 50), "mask": torch.bool}),
    AttentionCase("float mask", 40, 50, options={"attn_mask": (4, 40, 50), "mask": torch.float32}),
)


def checks() -> Iterator[Check]:
    """Yields every check."""
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        for scaling in SCALINGS:
            yield Check(f"mxfp8_quantize {name}, {scaling}", lambda d, t=dtype, s=scaling: quantize(d, t, s))
        yield Check(f"mxfp8_dequantize {name}", lambda d, t=dtype: dequantize(d, t))
        for rows in (1, 2, 8, 9, 40, 200):
            yield Check(f"mxfp8_linear {name}, {rows} rows", lambda d, t=dtype, m=rows: linear(d, t, m))
        for case in ATTENTION:
            yield Check(f"flash_attention {name}, {case.name}", lambda d, t=dtype, c=case: attention(d, t, c))


def quantize(device: str, dtype: torch.dtype, scaling: str) -> None:
    """Bytes, of values over the whole range of the dtype."""
    scale = torch.exp2(testing.integers(-14, 14, (40, 1), 5).float())
    x = (testing.randn(40, 100) * scale).to(dtype)
    x[0, 0], x[1, 40], x[2, :32] = torch.nan, torch.inf, 0
    got = torch_mtl4.mxfp8_quantize(x.to(device), scaling=scaling)
    for name, ours, want in zip(("data", "scale"), got, quantize_reference(x, scaling=scaling), strict=True):
        testing.assert_equal(ours.cpu(), want, name)


def dequantize(device: str, dtype: torch.dtype) -> None:
    """Every code under every scale."""
    data = torch.arange(256, dtype=torch.uint8).repeat(256, 1)
    scale = torch.arange(256, dtype=torch.uint8)[:, None].repeat(1, 8)
    got = torch_mtl4.mxfp8_dequantize(data.to(device), scale.to(device), dtype=dtype)
    want = dequantize_reference(data, scale, dtype=dtype)
    # A GPU may take values below the smallest normal number for 0.
    flushed = (want.abs() < torch.finfo(dtype).tiny) & (got.cpu() == 0)
    testing.assert_equal(torch.where(flushed, want, got.cpu()), want)


def linear(device: str, dtype: torch.dtype, rows: int) -> None:
    """Sums that do not round in float32, so that every order of adding gives the same."""
    weight, scale, values = testing.exact_layer(130, 160)
    x, bias = testing.exact_x(rows, 160, dtype), testing.integers(-9, 9, (130,), 4).to(dtype)
    got = torch_mtl4.mxfp8_linear(*(t.to(device) for t in (x, weight, scale, bias)))
    testing.assert_equal(got.cpu(), (x.double() @ values.T + bias.double()).to(dtype))


def attention(device: str, dtype: torch.dtype, case: AttentionCase) -> None:
    """Out and lse against float64; the errors allowed are those of PyTorch's attention without the case's options."""
    shapes = (
        (2, case.heads, case.q_len, case.head_dim),
        (2, case.kv_heads, case.kv_len, case.head_dim),
        (2, case.kv_heads, case.kv_len, case.v_head_dim),
    )
    qkv = [testing.randn(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    options = _options(case.options)
    wide = [t.double() for t in qkv]
    want, want_lse = attention_reference(*wide, return_lse=True, **_in(options, torch.float64))
    got, lse = torch_mtl4.flash_attention(*(t.to(device) for t in qkv), return_lse=True, **_on(options, device))
    plain = F.scaled_dot_product_attention(*qkv, enable_gqa=True)
    error = testing.error_of(plain, F.scaled_dot_product_attention(*wide, enable_gqa=True))
    testing.assert_close(got.cpu(), want, testing.allowed_error(error, want, dtype), "out")
    testing.assert_close(lse.cpu(), want_lse, testing.allowed_error(error, want_lse, torch.float32), "lse")


def _options(options: dict) -> dict:
    """With tensors in place of shapes."""
    options = dict(options)
    kind = options.pop("mask", None)
    for seed, (name, value) in enumerate(options.items()):
        if name in ("sinks", "alibi_slopes"):
            options[name] = testing.randn(*value, seed=10 + seed).abs()
        elif name == "attn_mask":
            mask = testing.randn(*value, seed=10 + seed)
            options[name] = mask > -0.5 if kind is torch.bool else mask
    return options


def _in(options: dict, dtype: torch.dtype) -> dict:
    return {
        name: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in options.items()
    }


def _on(options: dict, device: str) -> dict:
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in options.items()}
