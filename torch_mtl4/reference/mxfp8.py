"""The mxfp8 ops in plain PyTorch, from the tables of torch_mtl4.formats: the truth for every backend."""

import torch
from torch import Tensor

from torch_mtl4.formats import BLOCK_SIZE, E4M3, ScalingMode, block_scale, e8m0_values


def mxfp8_quantize(x: Tensor, *, scaling: str = "rceil") -> tuple[Tensor, Tensor]:
    """See `torch_mtl4.mxfp8_quantize`."""
    *rows, k = x.shape
    blocks = _blocks(x.double())
    scale = block_scale(blocks.abs().amax(-1) if blocks.numel() else blocks.new_zeros(blocks.shape[:-1]), E4M3,
                        ScalingMode(scaling))  # fmt: skip
    factor = e8m0_values().to(x.device)[scale.long()]
    data = E4M3.encode(blocks / factor[..., None])
    # One code of NaN, without the sign that a NaN of the input may have.
    data = torch.where(factor.isnan()[..., None], E4M3.nan, data)
    return data.flatten(-2)[..., :k].reshape(*rows, k).to(torch.uint8).contiguous(), scale


def mxfp8_dequantize(data: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    """See `torch_mtl4.mxfp8_dequantize`. Also takes float64."""
    *rows, k = data.shape
    values = E4M3.decode(_blocks(_bytes(data))) * e8m0_values().to(data.device)[_bytes(scale).long()][..., None]
    return values.flatten(-2)[..., :k].reshape(*rows, k).to(dtype)


def mxfp8_linear(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """See `torch_mtl4.mxfp8_linear`. Computes in float64 for float64 inputs, else in float32."""
    accumulate = torch.promote_types(x.dtype, torch.float32)
    values = mxfp8_dequantize(weight, weight_scale, dtype=accumulate)
    out = x.to(accumulate) @ values.mT
    if bias is not None:
        out = out + bias.to(accumulate)
    return out.to(x.dtype)


def _blocks(t: Tensor) -> Tensor:
    """[..., K] as [..., ceil(K / 32), 32], padded with zeros."""
    k = t.shape[-1]
    count = (k + BLOCK_SIZE - 1) // BLOCK_SIZE
    return torch.nn.functional.pad(t, (0, count * BLOCK_SIZE - k)).unflatten(-1, (count, BLOCK_SIZE))


def _bytes(t: Tensor) -> Tensor:
    return t.view(torch.uint8)
