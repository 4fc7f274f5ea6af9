"""torch_mtl4.scaled_dot_product_attention: F.scaled_dot_product_attention's signature on flash_attention."""

import math
from typing import Any

from torch import Tensor

from torch_mtl4.ops import _checks as check
from torch_mtl4.ops._checks import known, shape
from torch_mtl4.ops._errors import expected
from torch_mtl4.ops.flash_attention import call
from torch_mtl4.ops.flash_attention_checks import check_head_dim, check_mask, check_operands

OP = "scaled_dot_product_attention"


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention` on `torch_mtl4.flash_attention`: same arguments, same meaning.

    softmax(scale * Q K^T + mask) V

    Leading dimensions broadcast as in matmul. A mask and is_causal apply together, as on PyTorch's CPU path. Rows that
    attend to nothing give 0. Masks of any floating dtype are taken, where PyTorch asks for query's or float32.

    Args:
        query: [..., Lq, D], or [..., H, Lq, D] with enable_gqa; float32, bfloat16 or float16; D from 1 to 576.
        key: [..., Lk, D], query's dtype.
        value: [..., Lk, Dv], query's dtype, Dv from 1 to 576.
        attn_mask: broadcastable to [..., Lq, Lk]; bool (True: attend) or floating (added to the scores).
        dropout_p: 0; dropout has no kernel yet.
        is_causal: query i sees keys up to i (the upper left corner, also where Lq differs from Lk).
        scale: factor of the scores; 1 / sqrt(D) where None.
        enable_gqa: the head dimension (third from last) of key and value may divide query's.

    Returns:
        [..., Lq, Dv] of query's dtype.

    Raises:
        TypeError: an argument that is no tensor, or of the wrong dtype.
        ValueError: a shape, device or value that does not fit.
        NotImplementedError: dropout_p > 0, float64, head dims over 576.

    Source: the documentation of torch.nn.functional.scaled_dot_product_attention.
    """
    check_operands(OP, query, key, value, min_ndim=3 if enable_gqa else 2, max_ndim=None)
    check_head_dim(OP, "query", query.shape[-1])
    check_head_dim(OP, "value", value.shape[-1])
    if key.shape[-1] != query.shape[-1]:
        expected(ValueError, OP, f"key [..., Lk, D] with D = {known(query.shape[-1])}", shape(key))
    if value.shape[-2] != key.shape[-2]:
        expected(ValueError, OP, f"value [..., Lk, Dv] with Lk = {known(key.shape[-2])}", shape(value))
    check_dropout(dropout_p)
    check.real(OP, "scale", scale, positive=False)

    ndim = max(4, query.ndim, key.ndim, value.ndim)
    full_q, full_k, full_v = (t[(None,) * (ndim - t.ndim)] for t in (query, key, value))
    if enable_gqa:
        full_q, full_k, full_v = group_heads(full_q, full_k, full_v)
        lead, heads = leading(ndim - 3, full_q, full_k, full_v), full_q.shape[-3]
    else:
        *lead, heads = leading(ndim - 2, full_q, full_k, full_v)
        full_q = full_q.expand(*full_q.shape[:-3], heads, -1, -1)
        if full_k.shape[-3] != full_v.shape[-3]:
            full_k, full_v = (t.expand(*t.shape[:-3], heads, -1, -1) for t in (full_k, full_v))
    sizes = [*lead, heads, query.shape[-2], key.shape[-2]]
    out_ndim = max(query.ndim, key.ndim, value.ndim)
    if attn_mask is not None:
        check_mask(OP, query, attn_mask, sizes[ndim - out_ndim :])
        attn_mask = attn_mask[(None,) * (ndim - attn_mask.ndim)]

    out, _ = call(
        *(flatten(t, lead) for t in (full_q, full_k, full_v)),
        attn_mask=None if attn_mask is None else flatten(attn_mask, lead),
        causal="upper_left" if is_causal else None,
        scale=scale,
    )
    out = out.unflatten(0, lead) if len(lead) > 1 else out
    return out[(0,) * (ndim - out_ndim)]


def check_dropout(dropout_p: Any) -> None:
    check.real(OP, "dropout_p", dropout_p, positive=False)
    if dropout_p is None or not 0 <= dropout_p <= 1:
        expected(ValueError, OP, "dropout_p from 0 to 1", known(dropout_p))
    if dropout_p > 0:
        expected(NotImplementedError, OP, "dropout_p 0, the only one that has a kernel", known(dropout_p))


def group_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Brings key and value to one head count, which flash_attention shares among query's heads."""
    heads, k_heads, v_heads = (t.shape[-3] for t in (query, key, value))
    if any((heads % n if n else heads) != 0 for n in (k_heads, v_heads)):
        expected(ValueError, OP, "head counts of key and value that divide query's with enable_gqa",
                 f"{known(heads)}, {known(k_heads)} and {known(v_heads)}")  # fmt: skip
    if k_heads != v_heads:
        key, value = (t.repeat_interleave(heads // t.shape[-3], dim=-3) for t in (key, value))
    return query, key, value


def leading(count: int, query: Tensor, key: Tensor, value: Tensor) -> list[int]:
    """The sizes that the first `count` dimensions broadcast to."""
    sizes = []
    for i in range(count):
        found = [t.shape[i] for t in (query, key, value)]
        size = found[0] if found[0] != 1 else found[1] if found[1] != 1 else found[2]
        if any(n not in (1, size) for n in found):
            expected(ValueError, OP, "leading dimensions of query, key and value that broadcast",
                     f"{shape(query)}, {shape(key)} and {shape(value)}")  # fmt: skip
        sizes.append(size)
    return sizes


def flatten(t: Tensor, lead: list[int]) -> Tensor:
    """[*lead, H, L, D] as [B, H, L, D]; copies only where more than one dimension broadcasts unevenly."""
    if len(lead) == 1:
        return t.expand(lead[0], -1, -1, -1)
    return t.expand(*lead, -1, -1, -1).reshape(math.prod(lead), *t.shape[-3:])
