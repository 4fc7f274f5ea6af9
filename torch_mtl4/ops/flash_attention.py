"""torch_mtl4.flash_attention: the function, its checks, its fake kernel and its gradient."""

import torch
from torch import Tensor

from torch_mtl4 import _ops
from torch_mtl4.reference import flash_attention as reference


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
    """Softmax attention that never forms the score matrix."""
    left, right = (-1 if side is None else side for side in window or (-1, -1))
    sinks, alibi_slopes = (None if t is None else t.float() for t in (sinks, alibi_slopes))
    out, lse = _ops.flash_attention(
        query, key, value, attn_mask, causal, left, right, scale, softcap, sinks, alibi_slopes
    )
    return (out, lse) if return_lse else out


@torch.library.register_fake("torch_mtl4::flash_attention")
def _fake(query, key, value, attn_mask=None, causal=None, window_left=-1, window_right=-1, scale=None, softcap=None,
          sinks=None, alibi_slopes=None):  # fmt: skip
    batch, heads, q_len, _ = query.shape
    out = query.new_empty(batch, q_len, heads, value.shape[3]).transpose(1, 2)
    return out, query.new_empty(batch, heads, q_len, dtype=torch.float32)


def _setup_context(ctx, inputs, output):
    ctx.save_for_backward(*(t for t in (*inputs[:4], *inputs[9:]) if t is not None))
    ctx.present = [t is not None for t in (*inputs[:4], *inputs[9:])]
    ctx.options = inputs[4:9]


def _backward(ctx, grad_out, grad_lse):
    saved = iter(ctx.saved_tensors)
    tensors = [next(saved) if present else None for present in ctx.present]
    with torch.enable_grad():
        inputs = [t.detach().requires_grad_() if t is not None and t.is_floating_point() else t for t in tensors]
        query, key, value, attn_mask, sinks, alibi_slopes = inputs
        causal, left, right, scale, softcap = ctx.options
        out, lse = reference.flash_attention(
            query, key, value, attn_mask=attn_mask, causal=causal, window=(left, right), scale=scale,
            softcap=softcap, sinks=sinks, alibi_slopes=alibi_slopes, return_lse=True,
        )  # fmt: skip
        wanted = [t for t in inputs if t is not None and t.requires_grad]
        grads = iter(torch.autograd.grad((out, lse), wanted, (grad_out, grad_lse), allow_unused=True))
    grads = [next(grads) if t is not None and t.requires_grad else None for t in inputs]
    return (*grads[:4], None, None, None, None, None, *grads[4:])


torch.library.register_autograd("torch_mtl4::flash_attention", _backward, setup_context=_setup_context)
