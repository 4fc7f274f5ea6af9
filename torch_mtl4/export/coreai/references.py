"""What each emitted kernel computes, of plain tensors in the layout at its edge.

Core AI has no lowering for shifts of bits and for views as another dtype, so codes are decoded by tables.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from torch_mtl4.formats import BLOCK_SIZE, E4M3, ScalingMode, e8m0_values
from torch_mtl4.formats.mx import E8M0_BIAS


def mxfp8_linear(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """out [M, N] of x [M, K], weight [N, K] and weight_scale [N, ceil(K / 32)]."""
    out = x.float() @ _decoded(weight, weight_scale).t()
    if bias is not None:
        out = out + bias.float()
    return out.to(x.dtype)


def mxfp8_dequantize(data: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    """[R, K] of codes [R, K] and scales [R, ceil(K / 32)]."""
    return _decoded(data, scale).to(dtype)


def mxfp8_quantize(x: Tensor, *, scaling: str) -> tuple[Tensor, Tensor]:
    """data [R, K] and scale [R, ceil(K / 32)] of x [R, K]: codes are numbers of steps that a value has passed."""
    rows, k = x.shape
    blocks = -(-k // BLOCK_SIZE)
    values = torch.nn.functional.pad(x.float(), (0, blocks * BLOCK_SIZE - k)).reshape(rows, blocks, BLOCK_SIZE)
    largest = values.abs().amax(-1, keepdim=True)
    finite = largest <= torch.finfo(torch.float32).max
    scale = torch.where(finite, (largest >= _SCALE_STEPS[scaling]).int().sum(-1, keepdim=True), 255)
    quotients = values * _FACTORS_BELOW[scale]
    codes = (quotients.abs()[..., None] >= _CODE_STEPS).int().sum(-1)
    # The quotient of a zero has no sign that a comparison sees.
    negative = torch.where(values == 0, 1 / values, values) < 0
    codes = torch.where(finite, codes + negative.int() * E4M3.sign, E4M3.nan)
    return codes.reshape(rows, blocks * BLOCK_SIZE)[:, :k].to(torch.uint8), scale[..., 0].to(torch.uint8)


def _scale_steps(mode: ScalingMode) -> Tensor:
    """For the scale bytes from 1 on, the least largest magnitude of a block that has them: a power of two, times
    1.75, 1 or 1.9375 of the byte before, or the float after that."""
    powers = torch.exp2(torch.arange(1.0, 255.0, dtype=torch.float64) - E8M0_BIAS + E4M3.max_exponent)
    if mode == ScalingMode.FLOOR:
        return powers.float()
    if mode == ScalingMode.EVEN:
        return (powers / 2 * (2 - 2.0 ** -(E4M3.mantissa_bits + 1))).float()
    reached = powers / 2 * (E4M3.max / 2.0**E4M3.max_exponent if mode == ScalingMode.RCEIL else 1)
    return _after(reached.float())


def _code_steps() -> Tensor:
    """For the codes from 1 to the largest, the least quotient that is rounded to them: ties go to even codes."""
    values = E4M3.values()[: E4M3.nan]
    middles = ((values[1:] + values[:-1]) / 2).float()
    to_even = torch.arange(1, E4M3.nan) % 2 == 0
    return torch.where(to_even, middles, _after(middles))


def _after(x: Tensor) -> Tensor:
    return torch.nextafter(x, torch.full_like(x, math.inf))


def _decoded(data: Tensor, scale: Tensor) -> Tensor:
    """float32 [R, K] of codes [R, K] and scales [R, ceil(K / 32)]."""
    rows, k = data.shape
    elements = _ELEMENTS[data.int()]
    factors = _FACTORS[scale.int()]
    factors = factors[:, :, None].expand(rows, scale.shape[1], BLOCK_SIZE).reshape(rows, scale.shape[1] * BLOCK_SIZE)
    return elements * factors[:, :k]


def flash_attention(query: Tensor, key: Tensor, value: Tensor, *rest: Tensor, sinks: bool, **options):
    """out [B, Lq, H, Dv] and lse [B, H, Lq]. `rest` holds mask, sinks and alibi_slopes, those that there are.

    Args:
        rows_first: of query, key and value, whether they are [B, L, H, D] instead of [B, H, L, D].
        mask, sinks, alibi: whether there is one.
        causal, window, scale, softcap: as the op has them.
    """
    rest = list(rest)
    sink = rest.pop(1 if options["mask"] else 0) if sinks else None
    scores = _scores(query, key, value, rest, **options)
    part = _part(scores, 0, scores.logits.shape[3])
    return _finished(part, sink, query.dtype)


def flash_attention_split(query: Tensor, key: Tensor, value: Tensor, *rest: Tensor, splits: int, **options) -> Tensor:
    """The keys in parts, [B, H, Lq * splits, Dv + 2]: of each the weighted values, and max and sum of the softmax."""
    scores = _scores(query, key, value, rest, **options)
    first, last = scores.seen
    length = max(1, -(-(last - first) // splits))
    parts = []
    for split in range(splits):
        begin = min(first + split * length, last)
        part = _part(scores, begin, min(begin + length, last))
        parts.append(torch.cat([part.weighted, part.max, part.sum], -1))
    batch, heads, q_len, columns = parts[0].shape
    return torch.stack(parts, 3).reshape(batch, heads, q_len * splits, columns)


def flash_attention_merge(partials: Tensor, sinks: Tensor | None = None, *, dtype: torch.dtype, splits: int):
    """out [B, Lq, H, Dv] and lse [B, H, Lq] from what `flash_attention_split` gives."""
    batch, heads, parts, columns = partials.shape
    partials = partials.reshape(batch, heads, parts // splits, splits, columns)
    weighted, tops, sums = partials[..., :-2], partials[..., -2:-1], partials[..., -1:]
    top = tops.amax(3)
    factor = torch.exp(tops - _anchor(top)[:, :, :, None])
    return _finished(_Part((weighted * factor).sum(3), top, (sums * factor).sum(3)), sinks, dtype)


class _Scores(NamedTuple):
    logits: Tensor  # [B, H, Lq, Lk], -inf where a key is hidden
    value: Tensor  # [B, H, Lk, Dv]
    seen: tuple[int, int]  # keys that some query sees, of causal and window alone


class _Part(NamedTuple):
    weighted: Tensor  # [B, H, Lq, Dv], relative to max as sum is
    max: Tensor  # [B, H, Lq, 1]
    sum: Tensor


def _scores(query, key, value, rest, *, rows_first, mask, alibi, causal, window, scale, softcap) -> _Scores:
    query, key, value = (
        (x.permute(0, 2, 1, 3) if first else x).float()
        for x, first in zip((query, key, value), rows_first, strict=True)
    )
    heads, q_len, head_dim = query.shape[1:]
    key, value = (_repeated(x, heads) for x in (key, value))
    kv_len = key.shape[2]
    diagonal = 0 if causal == "upper_left" else kv_len - q_len
    left, right = (math.inf if side < 0 else side for side in window)
    right = right if causal is None else min(right, 0)

    logits = query @ key.transpose(2, 3) * (1 / math.sqrt(head_dim) if scale is None else scale)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    distance = torch.arange(float(kv_len)) - torch.arange(float(q_len))[:, None] - float(diagonal)
    if alibi:
        logits = logits - rest[-1][:, :, None, None] * distance.abs()
    if mask:
        logits = _masked(logits, rest[0])
    logits = torch.where((distance >= -left) & (distance <= right), logits, -math.inf)
    first = int(max(0, diagonal - left))
    return _Scores(logits, value, (first, int(max(first, min(kv_len, q_len + diagonal + right)))))


def _masked(logits: Tensor, mask: Tensor) -> Tensor:
    """A key that 0 or -inf hides is hidden whatever its logit is."""
    if mask.dtype == torch.uint8:
        return torch.where(mask != 0, logits, -math.inf)
    return torch.where(mask.float() == -math.inf, -math.inf, logits + mask.float())


def _repeated(x: Tensor, heads: int) -> Tensor:
    """[B, H, L, D] of a key or value that several query heads share."""
    batch, kv_heads, length, columns = x.shape
    if kv_heads == heads:
        return x
    x = x[:, :, None].expand(batch, kv_heads, heads // kv_heads, length, columns)
    return x.reshape(batch, heads, length, columns)


def _part(scores: _Scores, begin: int, end: int) -> _Part:
    """What the keys [begin, end) give."""
    if begin == end:
        nothing = torch.zeros(scores.logits.shape[:3])[..., None]
        return _Part(nothing.expand(*nothing.shape[:3], scores.value.shape[3]), nothing - math.inf, nothing)
    logits = scores.logits[..., begin:end]
    top = logits.amax(-1, keepdim=True)
    weights = torch.exp(logits - _anchor(top))
    return _Part(weights @ scores.value[:, :, begin:end], top, weights.sum(-1, keepdim=True))


def _finished(part: _Part, sinks: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    top, total, shrunk = part.max, part.sum, torch.ones_like(part.max)
    if sinks is not None:
        sink = sinks.float()[None, :, None, None]
        top = torch.maximum(top, sink)
        shrunk = torch.exp(part.max - _anchor(top))
        total = total * shrunk + torch.exp(sink - _anchor(top))
    factor = torch.where(part.sum == 0, 0.0, shrunk / total)
    lse = torch.where(total == 0, -math.inf, _anchor(top) + torch.log(total))
    return (part.weighted * factor).to(dtype).permute(0, 2, 1, 3), lse[..., 0]


def _anchor(top: Tensor) -> Tensor:
    """What exponents are relative to: 0 as long as nothing was seen."""
    return torch.where(top == -math.inf, 0.0, top)


_ELEMENTS = E4M3.values().float()
_FACTORS = e8m0_values().float()
_FACTORS_BELOW = (1 / e8m0_values()).float()
_CODE_STEPS = _code_steps()
_SCALE_STEPS = {mode.value: _scale_steps(mode) for mode in ScalingMode}
