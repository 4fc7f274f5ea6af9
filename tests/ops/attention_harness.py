"""Runs flash_attention beside its reference and PyTorch's own attention, under the policy of torch_mtl4.testing."""

import torch
import torch.nn.functional as F

from torch_mtl4 import flash_attention, testing
from torch_mtl4.reference import flash_attention as reference

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def inputs(
    q_len, kv_len, head_dim=16, *, batch=1, heads=2, kv_heads=None, v_head_dim=None, dtype=torch.float32, seed=0,
    layout="poisoned",
):  # fmt: skip
    """query, key and value, laid out in poison unless another layout is named."""
    kv_heads = heads if kv_heads is None else kv_heads
    v_head_dim = head_dim if v_head_dim is None else v_head_dim
    shapes = (
        (batch, heads, q_len, head_dim),
        (batch, kv_heads, kv_len, head_dim),
        (batch, kv_heads, kv_len, v_head_dim),
    )
    return tuple(
        testing.lay_out(testing.randn(*shape, dtype=dtype, seed=3 * seed + i), layout) for i, shape in enumerate(shapes)
    )


def doubled(options):
    return {
        name: t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for name, t in options.items()
    }


def truth(query, key, value, **options):
    """out and lse in float64."""
    return reference.flash_attention(query.double(), key.double(), value.double(), return_lse=True, **doubled(options))


def as_bias(query, key, causal=None, window=None, attn_mask=None, alibi_slopes=None, **_):
    """All that hides or shifts a score, as one float32 mask that F.scaled_dot_product_attention takes."""
    distance = reference.key_distance(query.shape[2], key.shape[2], causal, query.device)
    bias = torch.zeros(*query.shape[:3], key.shape[2])
    if alibi_slopes is not None:
        slopes = alibi_slopes.float()
        bias = bias - (slopes if slopes.ndim == 2 else slopes[None])[..., None, None] * distance.abs()
    if attn_mask is not None:
        bias = bias + (torch.where(attn_mask, 0.0, -torch.inf) if attn_mask.dtype == torch.bool else attn_mask.float())
    return bias.masked_fill(~reference.visible_keys(distance, causal, window), -torch.inf)


def pytorch(query, key, value, scale=None, **options):
    """PyTorch's own attention in the same dtype; it has no softcap and no sinks, which change its error little."""
    key, value = (t.repeat_interleave(query.shape[1] // max(t.shape[1], 1), 1) for t in (key, value))
    bias = as_bias(query, key, **options)
    return F.scaled_dot_product_attention(query, key, value, bias, scale=scale)


def allowed(query, key, value, out, lse, **options):
    """The errors that the policy grants to out and to lse."""
    plain = {name: t for name, t in options.items() if name not in ("softcap", "sinks")}
    plain_out, plain_lse = truth(query, key, value, **plain)
    out_error = testing.error_of(pytorch(query, key, value, **plain), plain_out)
    float_lse = reference.flash_attention(query.float(), key.float(), value.float(), return_lse=True, **plain)[1]
    lse_error = testing.error_of(float_lse, plain_lse)
    # lse is float32 for every dtype; PyTorch's own error is that of its float32 path.
    return (
        testing.allowed_error(out_error, out, query.dtype),
        testing.allowed_error(lse_error, lse, torch.float32),
    )


def check(query, key, value, **options):
    """Compares the op with its reference, and returns what the op gave."""
    out, lse = flash_attention(query, key, value, return_lse=True, **options)
    want_out, want_lse = truth(query, key, value, **options)
    out_allowed, lse_allowed = allowed(query, key, value, want_out, want_lse, **options)
    assert out.dtype == query.dtype and lse.dtype == torch.float32
    testing.assert_close(out, want_out, out_allowed, "out")
    testing.assert_close(lse, want_lse, lse_allowed, "lse")
    return out, lse
