"""Attention that forms its weights: for the calls that need them, which no fused kernel can serve."""

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_mtl4.reference.flash_attention import key_distance, visible_keys


def explicit_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None,
    causal: str | None,
    window: tuple[int, int] | None,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
    dropout: float = 0.0,
    head_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(softcap(query @ key.T * scale) + attn_mask) @ value, with the weights as an output.

    Memory is O(Lq Lk). Softmax in float32 (float64 for float64 inputs); a row with nothing to attend gives 0. Dropout
    is torch's own on the weights, from its generator, so that gradient checkpointing draws the same numbers again.

    Args:
        query, key, value, attn_mask, causal, window, scale, softcap, sinks: as `torch_mtl4.flash_attention` takes them.
        dropout: probability of a weight to be dropped.
        head_mask: multiplies the weights, broadcast against [B, H, Lq, Lk].

    Returns:
        out [B, H, Lq, Dv] and the weights [B, H, Lq, Lk] (after dropout and head_mask), both of query's dtype.
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    logits = (query @ key.mT * scale).to(torch.promote_types(query.dtype, torch.float32))
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        logits = logits + attn_mask
    visible = visible_keys(key_distance(query.shape[2], key.shape[2], causal, query.device), causal, window)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        visible = visible & attn_mask
    logits = logits.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        sink = sinks.to(logits.dtype)[None, :, None, None].expand(*logits.shape[:3], 1)
        logits = torch.cat([logits, sink], dim=-1)
    # Rows without a key are softmaxed over finite numbers and zeroed, which keeps NaN out of their gradient too.
    empty = (logits == float("-inf")).all(dim=-1, keepdim=True)
    weights = torch.softmax(logits.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)
    weights = F.dropout(weights[..., : key.shape[2]].to(query.dtype), dropout)
    if head_mask is not None:
        weights = weights * head_mask
    return weights @ value, weights
