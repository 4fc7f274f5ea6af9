"""What each emitted kernel computes, of plain tensors in the layout at its edge.

Core AI has no lowering for shifts of bits and for views as another dtype, so codes are decoded by tables.
"""

from torch import Tensor

from torch_mtl4.formats import BLOCK_SIZE, E4M3, e8m0_values


def mxfp8_linear(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """out [M, N] of x [M, K], weight [N, K] and weight_scale [N, ceil(K / 32)]."""
    out = x.float() @ _decoded(weight, weight_scale).t()
    if bias is not None:
        out = out + bias.float()
    return out.to(x.dtype)


def _decoded(data: Tensor, scale: Tensor) -> Tensor:
    """float32 [R, K] of codes [R, K] and scales [R, ceil(K / 32)]."""
    rows, k = data.shape
    elements = E4M3.values().float()[data.int()]
    factors = e8m0_values().float()[scale.int()]
    factors = factors[:, :, None].expand(rows, scale.shape[1], BLOCK_SIZE).reshape(rows, scale.shape[1] * BLOCK_SIZE)
    return elements * factors[:, :k]
