"""Attention in plain PyTorch, upcast, and its gradient: the truth that every backend is compared with.

Computes in float64 for float64 inputs, which only the reference takes, else in float32.
Source: Vaswani et al., "Attention Is All You Need" (arXiv:1706.03762), section 3.2.1, with the extensions that
`torch_mtl4.flash_attention` documents.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    causal: str | None = None,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention through the whole score matrix. See `torch_mtl4.flash_attention`.

    Returns:
        out [B, H, Lq, Dv] of query's dtype, and with return_lse also lse [B, H, Lq] of the accumulation dtype.
    """
    distance = key_distance(query.shape[2], key.shape[2], causal, query.device)
    visible = visible_keys(distance, causal, window)
    scores = _scores(query, _repeat(key, query), distance, visible, attn_mask, scale, softcap, alibi_slopes)
    softmax = _softmax(scores.logits, sinks)
    out = softmax.weights @ _upcast(_repeat(value, query))
    out = out.to(query.dtype)
    return (out, softmax.lse) if return_lse else out


def flash_attention_backward(
    grad_out: Tensor | None,
    grad_lse: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    causal: str | None = None,
    window_left: int = -1,
    window_right: int = -1,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    mask_grad: bool = False,
    rows: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of query, key, value, attn_mask, sinks and alibi_slopes; empty for the last three where unwanted.

    With P = exp(logits - lse) and dP = dO V^T: dS = P * (dP - rowsum(P * dP) + dlse). Only `rows` query rows are held
    at a time. The formula is made of differentiable operations, so it can be differentiated again.
    """
    batch, heads, q_len, head_dim = query.shape
    kv_heads, kv_len = key.shape[1], key.shape[2]
    accumulate = torch.promote_types(query.dtype, torch.float32)
    factor = 1 / math.sqrt(head_dim) if scale is None else scale
    keys, values = _upcast(_repeat(key, query)), _upcast(_repeat(value, query))
    mask = attn_mask
    if mask is not None:
        mask = mask[(None,) * (4 - mask.ndim)]
    distance = key_distance(q_len, kv_len, causal, query.device)
    visible = visible_keys(distance, causal, (window_left, window_right))

    grad_q, grad_mask = [], []
    grad_k, grad_v = (t.new_zeros(batch, heads, kv_len, t.shape[3]) for t in (keys, values))
    grad_sinks = query.new_zeros(heads, dtype=accumulate)
    grad_slopes = query.new_zeros(batch, heads, dtype=accumulate)
    for start in range(0, q_len, rows or max(q_len, 1)):
        part = slice(start, start + (rows or q_len))
        q = _upcast(query[:, :, part])
        sees, away = visible[part], distance[part]
        mask_part = mask if mask is None or mask.shape[2] == 1 else mask[:, :, part]
        scores = _scores(q, keys, away, sees, mask_part, factor, softcap, alibi_slopes)
        softmax = _softmax(scores.logits, sinks)
        p = softmax.weights
        grad_o = q.new_zeros(*q.shape[:3], values.shape[3]) if grad_out is None else grad_out[:, :, part].to(q.dtype)
        grad_p = grad_o @ values.mT
        centre = (p * grad_p).sum(-1)
        if grad_lse is not None:
            centre = centre - grad_lse[:, :, part].to(accumulate)
        # Where the weight is 0, so is the gradient: a NaN in a value that is masked out must not come back as one.
        grad_s = torch.where(p == 0, 0.0, p * (grad_p - centre[..., None]))
        if sinks is not None:
            grad_sinks = grad_sinks - (softmax.sink_weight * centre).sum((0, 2))
        if alibi_slopes is not None:
            grad_slopes = grad_slopes - (grad_s * away.abs()).sum((2, 3))
        if mask_grad:
            grad_mask.append(grad_s.sum_to_size(*mask.shape[:2], 1 if mask.shape[2] == 1 else q.shape[2],
                                                mask.shape[3]))  # fmt: skip
        if softcap is not None:
            grad_s = grad_s * (1 - (scores.capped / softcap) ** 2)
        grad_q.append(grad_s @ keys * factor)
        grad_k = grad_k + grad_s.mT @ q * factor
        grad_v = grad_v + p.mT @ grad_o

    groups = (kv_heads, heads // max(kv_heads, 1))
    grad_k, grad_v = (t.unflatten(1, groups).sum(2) if heads else t[:, :0] for t in (grad_k, grad_v))
    return (
        torch.cat(grad_q, 2).to(query.dtype) if grad_q else torch.zeros_like(query),
        grad_k.to(key.dtype) if heads else torch.zeros_like(key),
        grad_v.to(value.dtype) if heads else torch.zeros_like(value),
        _collect_mask(grad_mask, attn_mask) if mask_grad else query.new_empty(0),
        query.new_empty(0) if sinks is None else grad_sinks.to(sinks.dtype),
        query.new_empty(0)
        if alibi_slopes is None
        else grad_slopes.sum_to_size(alibi_slopes.shape).to(alibi_slopes.dtype),
    )


def key_distance(q_len: int, kv_len: int, causal: str | None, device: torch.device) -> Tensor:
    """Key position minus the diagonal's, [Lq, Lk]: 0 on the diagonal, positive for keys after it."""
    diagonal = 0 if causal == "upper_left" else kv_len - q_len
    q_pos = torch.arange(q_len, device=device)[:, None] + diagonal
    return torch.arange(kv_len, device=device)[None, :] - q_pos


def visible_keys(distance: Tensor, causal: str | None, window: tuple[int | None, int | None] | None) -> Tensor:
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


class _Scores(NamedTuple):
    capped: Tensor  # after scale and softcap
    logits: Tensor  # and after ALiBi and the masks: -inf where a key is hidden


def _scores(query, key, distance, visible, attn_mask, scale, softcap, alibi_slopes) -> _Scores:
    query, key = _upcast(query), _upcast(key)
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    logits = scores
    if alibi_slopes is not None:
        slopes = alibi_slopes.to(scores.dtype)
        logits = logits - (slopes if slopes.ndim == 2 else slopes[None])[..., None, None] * distance.abs()
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            visible = visible & attn_mask
        else:
            # A key hidden by -inf is hidden even where its score is NaN or +inf.
            visible = visible & (attn_mask != -math.inf)
            logits = logits + attn_mask.to(scores.dtype)
    return _Scores(scores, logits.masked_fill(~visible, -math.inf))


class _Softmax(NamedTuple):
    weights: Tensor  # [B, H, Lq, Lk]
    sink_weight: Tensor | None  # [B, H, Lq]
    lse: Tensor  # [B, H, Lq]


def _softmax(logits: Tensor, sinks: Tensor | None) -> _Softmax:
    kv_len = logits.shape[-1]
    if sinks is not None:
        sink = sinks.to(logits.dtype)[None, :, None, None].expand(*logits.shape[:3], 1)
        logits = torch.cat([logits, sink], dim=-1)
    if logits.shape[-1] == 0:
        return _Softmax(logits, None, logits.new_full(logits.shape[:3], -math.inf))
    # Counted from the row's largest: beside a mask's lowest finite number, the log of a sum of weights is lost.
    top = logits.detach().amax(-1, keepdim=True)
    top = top.masked_fill(~top.isfinite(), 0.0)
    logits = logits - top
    hidden = (logits == -math.inf).all(-1, keepdim=True)
    # The log of a sum of nothing has no gradient: rows of nothing but -inf are computed from 0 and replaced.
    total = torch.exp(logits.masked_fill(hidden, 0.0)).sum(-1, keepdim=True)
    # Divided, weights sum up to 1 within a rounding; exp(logits - lse) would give them the error of lse in common, and
    # gradients that cancel over a row would keep it.
    weights = torch.exp(logits) / total
    lse = torch.where(hidden, -math.inf, top + torch.log(total))[..., 0]
    return _Softmax(weights[..., :kv_len], None if sinks is None else weights[..., kv_len], lse)


def _upcast(t: Tensor) -> Tensor:
    return t.to(torch.promote_types(t.dtype, torch.float32))


def _repeat(t: Tensor, query: Tensor) -> Tensor:
    return t.repeat_interleave(query.shape[1] // max(t.shape[1], 1), dim=1)


def _collect_mask(parts: list[Tensor], mask: Tensor) -> Tensor:
    if not parts:
        return torch.zeros_like(mask)
    whole = sum(parts[1:], parts[0]) if mask.ndim < 2 or mask.shape[-2] == 1 else torch.cat(parts, 2)
    return whole.reshape(mask.shape).to(mask.dtype)
