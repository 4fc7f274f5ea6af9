"""torch_mtl4.flash_attention and its fake kernel. The checks and the gradient stand in the files beside this one."""

import torch
from torch import Tensor

from torch_mtl4 import _ops
from torch_mtl4.ops import _autocast, flash_attention_grad  # noqa: F401  registers the gradient
from torch_mtl4.ops._errors import fake_kernel
from torch_mtl4.ops.flash_attention_checks import check_flash_attention


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
    """Softmax attention that never forms the score matrix.

    s_ij = scale * q_i . k_j
    s_ij = softcap * tanh(s_ij / softcap)                                if softcap is given
    s_ij = s_ij - alibi_slope_h * |j - c_i| + attn_mask_ij, or -inf      where causal, window or attn_mask hide the key
    lse_i = log(exp(sink_h) + sum_j exp(s_ij))                           without sinks, the sum alone
    out_i = sum_j exp(s_ij - lse_i) v_j

    c_i is the key that query i stands at: i where causal is "upper_left", else i + Lk - Lq ("lower_right" or None).
    causal, window and attn_mask apply together: a key is attended where all of them allow it. A row that may attend
    to nothing gives out 0 and lse -inf, and passes no gradient; it never gives NaN. A hidden key is skipped whatever
    its row of `key` holds. Its row of `value` must be finite: NaN and Inf there may or may not reach the output.

    Scores, softmax and sums are float32 for every dtype. Inputs may be strided in any way and are not copied where
    their last stride is 1. Under autocast query, key and value are cast to the autocast dtype and everything else
    keeps its own; without autocast mixed dtypes raise. Differentiable in every floating input, any number of times;
    the gradient recomputes the scores a slab of query rows at a time and is much slower than the forward pass.
    vmap runs the op once for each element of the batch.

    Args:
        query: [B, H, Lq, D] of dtype float32, bfloat16 or float16, D from 1 to 576.
        key: [B, Hkv, Lk, D], query's dtype. H is a multiple of Hkv; query head h attends with kv head h // (H / Hkv).
        value: [B, Hkv, Lk, Dv], query's dtype, Dv from 1 to 576.
        attn_mask: broadcastable to [B, H, Lq, Lk]; bool (True: attend) or floating (added to the scores after scale
            and softcap; -inf hides the key, the dtype's lowest finite value does not).
        causal: None, "upper_left" (query i sees keys up to i: F.scaled_dot_product_attention's is_causal) or
            "lower_right" (up to i + Lk - Lq: what decoding with a cache wants).
        window: (left, right): query i sees the keys from c_i - left to c_i + right, both included. None or -1:
            unbounded. A sliding window of w keys that ends at the token itself is (w - 1, 0).
        scale: factor of the scores, any finite number; 1 / sqrt(D) where None.
        softcap: bound of the scores, greater than 0.
        sinks: [H], any floating dtype (held in float32): one more logit a head, in the denominator and in lse only.
        alibi_slopes: [H] or [B, H], any floating dtype (held in float32).
        return_lse: return lse too.

    Returns:
        out [B, H, Lq, Dv] of query's dtype, laid out in memory as [B, Lq, H, Dv]; with return_lse the pair of out and
        lse [B, H, Lq], float32, natural logarithm.

    Raises:
        TypeError: an argument that is no tensor, or of the wrong dtype.
        ValueError: a shape, device or value that does not fit.
        NotImplementedError: float64, head dims over 576, layouts other than strided.

    Source: the tiling and online softmax of FlashAttention-2 (arXiv:2307.08691); ALiBi (arXiv:2108.12409); sinks as
        in gpt-oss (arXiv:2508.10925); soft-capping as in Gemma 2 (arXiv:2408.00118).
    """
    check_flash_attention(query, key, value, attn_mask, causal, window, scale, softcap, sinks, alibi_slopes)
    out, lse = call(query, key, value, attn_mask, causal, window, scale, softcap, sinks, alibi_slopes)
    return (out, lse) if return_lse else out


def call(
    query, key, value, attn_mask=None, causal=None, window=None, scale=None, softcap=None, sinks=None, alibi_slopes=None
) -> tuple[Tensor, Tensor]:
    """The op on arguments that have been checked."""
    left, right = (-1 if side is None else side for side in window or (-1, -1))
    if attn_mask is not None and attn_mask.dtype == torch.float64:
        attn_mask = to_float32_mask(attn_mask)
    sinks, alibi_slopes = (None if t is None else t.float() for t in (sinks, alibi_slopes))
    return _ops.flash_attention(query, key, value, attn_mask, causal, left, right, scale, softcap, sinks, alibi_slopes)


def to_float32_mask(mask: Tensor) -> Tensor:
    """A float64 mask as float32, finite where it is finite."""
    # float64's lowest value would round to -inf, and a row that attends everywhere alike would attend nowhere.
    limit = torch.finfo(torch.float32).max
    return torch.where(mask.isinf(), mask, mask.clamp(-limit, limit)).float()


@fake_kernel("flash_attention")
def _fake(
    query, key, value, attn_mask=None, causal=None, window_left=-1, window_right=-1, scale=None, softcap=None,
    sinks=None, alibi_slopes=None,
):  # fmt: skip
    window = (window_left, window_right)
    check_flash_attention(query, key, value, attn_mask, causal, window, scale, softcap, sinks, alibi_slopes)
    batch, heads, q_len, _ = query.shape
    out = query.new_empty(batch, q_len, heads, value.shape[3]).transpose(1, 2)
    return out, query.new_empty(batch, heads, q_len, dtype=torch.float32)


_autocast.register(_ops.flash_attention, operands=(0, 1, 2))
