"""The gradient of flash_attention: the formula of the reference, computed a slab of query rows at a time.

It is the slow path: exact, in float32, and never more than a slab of scores in memory. torch.compile sees one op.
"""

import torch
from torch import Tensor

from torch_mtl4 import _ops
from torch_mtl4.ops._errors import fake_kernel
from torch_mtl4.reference import flash_attention as reference

# Scores held at a time: 4 Mi float32 values, 16 MiB for each of the handful of intermediates.
SLAB = 1 << 22
TENSORS = (0, 1, 2, 3, 9, 10)  # query, key, value, attn_mask, sinks, alibi_slopes in the arguments of the forward op


def _backward_kernel(
    grad_out, grad_lse, query, key, value, attn_mask=None, causal=None, window_left=-1, window_right=-1, scale=None,
    softcap=None, sinks=None, alibi_slopes=None, mask_grad=False,
):  # fmt: skip
    batch, heads, _, _ = query.shape
    return reference.flash_attention_backward(
        grad_out, grad_lse, query, key, value, attn_mask, causal, window_left, window_right, scale, softcap, sinks,
        alibi_slopes, mask_grad, rows=max(1, SLAB // max(1, batch * heads * key.shape[2])),
    )  # fmt: skip


_ops.LIBRARY.impl("flash_attention_backward", _backward_kernel, "CompositeExplicitAutograd")


@fake_kernel("flash_attention_backward")
def _backward_fake(
    grad_out, grad_lse, query, key, value, attn_mask=None, causal=None, window_left=-1, window_right=-1, scale=None,
    softcap=None, sinks=None, alibi_slopes=None, mask_grad=False,
):  # fmt: skip
    def like(t):
        return query.new_empty(0) if t is None else t.new_empty(t.shape)

    return like(query), like(key), like(value), like(attn_mask if mask_grad else None), like(sinks), like(alibi_slopes)


def _setup_context(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    tensors = [inputs[i] for i in TENSORS]
    ctx.present = [t is not None for t in tensors]
    ctx.save_for_backward(*(t for t in tensors if t is not None))
    ctx.options = inputs[4:9]


def _backward(ctx, grad_out, grad_lse):
    if grad_out is None and grad_lse is None:
        return (None,) * 11
    needed = dict(enumerate(ctx.needs_input_grad))  # shorter than the arguments where defaults were left out
    saved = iter(ctx.saved_tensors)
    query, key, value, attn_mask, sinks, alibi_slopes = (next(saved) if there else None for there in ctx.present)
    grads = _ops.flash_attention_backward(
        grad_out, grad_lse, query, key, value, attn_mask, *ctx.options, sinks, alibi_slopes, needed.get(3, False)
    )
    wanted = [grad if needed.get(i) else None for i, grad in zip(TENSORS, grads, strict=True)]
    return (*wanted[:4], None, None, None, None, None, *wanted[4:])


def _setup_double_context(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.present = [isinstance(t, Tensor) for t in inputs]
    ctx.save_for_backward(*(t for t in inputs if isinstance(t, Tensor)))
    ctx.options = [None if isinstance(t, Tensor) else t for t in inputs]


def _double_backward(ctx, *grads):
    # Differentiates the reference's formula by autograd; where this is itself differentiated (create_graph), the
    # aliases below keep the history of the saved tensors, so higher derivatives are not lost either.
    saved = iter(ctx.saved_tensors)
    with torch.enable_grad():
        args = [
            (t := next(saved)).view_as(t) if there else option
            for there, option in zip(ctx.present, ctx.options, strict=True)
        ]
        outputs = reference.flash_attention_backward(*args)
        pairs = [
            (out, grad) for out, grad in zip(outputs, grads, strict=True) if grad is not None and out.requires_grad
        ]
    wanted = [i for i, needed in enumerate(ctx.needs_input_grad) if needed]
    result = [None] * len(args)
    if pairs and wanted:
        outs, out_grads = zip(*pairs, strict=True)
        found = torch.autograd.grad(
            outs, [args[i] for i in wanted], out_grads, allow_unused=True, create_graph=torch.is_grad_enabled()
        )
        for i, grad in zip(wanted, found, strict=True):
            result[i] = grad
    return tuple(result)


torch.library.register_autograd(
    "torch_mtl4::flash_attention", _backward, setup_context=_setup_context, lib=_ops.LIBRARY
)
torch.library.register_autograd(
    "torch_mtl4::flash_attention_backward", _double_backward, setup_context=_setup_double_context, lib=_ops.LIBRARY
)
