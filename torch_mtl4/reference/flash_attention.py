"""Attention in plain PyTorch, upcast: the truth that every backend is compared with."""

import math

import torch
from torch import Tensor


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    causal: str | None = None,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """See `torch_mtl4.flash_attention`. Computes in float64 for float64 inputs, else in float32."""
    accumulate = torch.promote_types(query.dtype, torch.float32)
    group = query.shape[1] // max(key.shape[1], 1)
    key, value = (t.repeat_interleave(group, dim=1).to(accumulate) for t in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale

    logits = query.to(accumulate) @ key.mT * scale
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    distance = key_distance(query.shape[2], key.shape[2], causal, query.device)
    if alibi_slopes is not None:
        slopes = alibi_slopes.to(accumulate)
        logits = logits - (slopes if slopes.ndim == 2 else slopes[None])[..., None, None] * distance.abs()
    visible = visible_keys(distance, causal, window)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            visible = visible & attn_mask
        else:
            logits = logits + attn_mask.to(accumulate)
    logits = logits.masked_fill(~visible, -math.inf)

    columns = logits
    if sinks is not None:
        sink = sinks.to(accumulate)[None, :, None, None].expand(*logits.shape[:3], 1)
        columns = torch.cat([logits, sink], dim=-1)
    lse = torch.logsumexp(columns, dim=-1) if columns.shape[-1] else columns.new_full(columns.shape[:3], -math.inf)
    # A row that sees nothing has lse = -inf; 0 in its place keeps exp(-inf - lse) at 0, and NaN out of the gradients.
    finite = torch.where(lse == -math.inf, 0.0, lse)
    out = torch.exp(logits - finite[..., None]) @ value
    out = out.to(query.dtype)
    return (out, lse.to(torch.promote_types(torch.float32, lse.dtype))) if return_lse else out


def key_distance(q_len: int, kv_len: int, causal: str | None, device: torch.device) -> Tensor:
    """Key position minus the diagonal's, [Lq, Lk]: 0 on the diagonal, positive for keys after it."""
    diagonal = 0 if causal == "upper_left" else kv_len - q_len
    q_pos = torch.arange(q_len, device=device)[:, None] + diagonal
    return torch.arange(kv_len, device=device)[None, :] - q_pos


def visible_keys(distance: Tensor, causal: str | None, window: tuple[int, int] | None) -> Tensor:
    """Which keys causal and window leave visible, bool [Lq, Lk]."""
    visible = torch.ones_like(distance, dtype=torch.bool)
    if causal is not None:
        visible &= distance <= 0
    left, right = window or (-1, -1)
    if left is not None and left >= 0:
        visible &= distance >= -left
    if right is not None and right >= 0:
        visible &= distance <= right
    return visible
