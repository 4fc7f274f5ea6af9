"""The attention function of the name "mtl4" in transformers' AttentionInterface."""

import warnings

import torch
from torch import Tensor, nn

from torch_mtl4 import _calls, flash_attention
from torch_mtl4.integrations import masks
from torch_mtl4.integrations.explicit import explicit_attention
from torch_mtl4.integrations.supported import autocast_dtype, why_unsupported

# Arguments of a model's forward, or of continuous batching's cache, that layers pass on to every callee and that say
# nothing that the mask does not say.
_MEANINGLESS = frozenset(
    {
        "block_table",
        "cache",
        "cache_position",
        "deterministic",
        "encoder_attention_mask",
        "encoder_hidden_states",
        "labels",
        "logits_indices",
        "logits_processor_args",
        "logits_to_keep",
        "max_length_k",
        "max_length_q",
        "num_items_in_batch",
        "output_hidden_states",
        "output_router_logits",
        "past_key_value",
        "past_key_values",
        "position_embeddings",
        "position_ids",
        "read_index",
        "return_dict",
        "training",
        "use_cache",
        "write_index",
    }
)
_warned: set[str] = set()


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
    sinks: Tensor | None = None,
    indices: Tensor | None = None,
    block_indices: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    output_attentions: bool | None = None,
    head_mask: Tensor | None = None,
    **kwargs,
) -> tuple[Tensor, Tensor | None]:
    """Attention of one transformers module through `torch_mtl4.flash_attention`.

    A mask beats is_causal. Without one, causal means that the last query sees the last key: the mask function of this
    name returns a mask whenever that is not so. sliding_window only counts without a mask, which holds it otherwise.

    The weights are formed in memory, exactly, by `explicit_attention` for dropout > 0, output_attentions, a head_mask
    that varies within a head, float64, and devices and head dims without a kernel. Such calls are counted with their
    reason (`torch_mtl4.report`), and are errors in strict mode.

    Args:
        module: the caller; is_causal is its attribute (default True) unless given.
        query: [B, H, Lq, D]; key: [B, Hkv, Lk, D]; value: [B, Hkv, Lk, Dv], any strides. Under autocast they are cast
            to its dtype, else mixed dtypes to value's (norms kept in float32 mix them).
        attention_mask: bool (True = attend) or additive, broadcastable to [B, H, Lq, Lk], any strides; cut to Lk.
        scaling: multiplies the logits, default D ** -0.5.
        dropout: probability; the caller passes 0 outside training.
        sliding_window: keys that a query sees, its own included.
        softcap: logits become softcap * tanh(logits / softcap) before any mask.
        position_bias: added to the logits, broadcastable to [B, H, Lq, Lk]; gets its gradient.
        s_aux, sinks: [H], one more logit a head in the denominator; get their gradient.
        indices: [B, Lq, n], the keys a query sees. block_indices: [B, groups, Lq, n], the blocks of keys.
        cu_seq_lens_q, cu_seq_lens_k: [sequences + 1], packed sequences that do not see each other (B = 1).
        output_attentions: return the weights.
        head_mask: multiplies the weights, [H] or broadcastable to [B, H, Lq, Lk].
        **kwargs: arguments without a meaning here; a name that is not known as such warns once.

    Returns:
        out [B, Lq, H, Dv], contiguous, of the computation's dtype; the weights or None.

    Raises:
        NotImplementedError: in strict mode, for a call that cannot take the kernel; packed sequences with B > 1.
        ValueError: a mask of fewer than 4 dimensions, or shapes that flash_attention refuses.
    """
    _warn_of_unknown(kwargs)
    query, key, value = _one_dtype(query, key, value)
    kv_len = key.shape[2]
    sinks = s_aux if sinks is None else sinks
    softcap = softcap or None
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    mask, causal = _mask_of_call(
        attention_mask, bool(causal), query, kv_len, position_bias, indices, block_indices, cu_seq_lens_q,
        cu_seq_lens_k, module,
    )  # fmt: skip
    window = None
    if attention_mask is None and sliding_window is not None and sliding_window > 0:
        window = (sliding_window - 1, -1 if causal else sliding_window - 1)
    options = {
        "attn_mask": mask,
        "causal": "lower_right" if causal else None,
        "window": window,
        "scale": query.shape[-1] ** -0.5 if scaling is None else scaling,
        "softcap": softcap,
        "sinks": None if sinks is None else sinks.reshape(-1),
    }

    head_scale = None
    if head_mask is not None:
        head_mask = head_mask.view(-1, 1, 1) if head_mask.ndim == 1 else head_mask
        if head_mask.shape[-2:] == (1, 1):
            head_scale, head_mask = head_mask, None
    reason = (
        (f"dropout {dropout}" if dropout > 0 else None)
        or ("output_attentions" if output_attentions else None)
        or ("a head_mask that varies within a head" if head_mask is not None else None)
        or why_unsupported(query, value)
    )
    if reason is not None:
        _calls.refuse_if_strict(getattr(module, "_mtl4_strict", False), module, reason)
    _calls.record(module, reason)
    if reason is None:
        out, weights = flash_attention(query, key, value, **options), None
        if head_scale is not None:
            out = out * head_scale.to(out.dtype)
    else:
        out, weights = explicit_attention(
            query, key, value, **options, dropout=dropout, head_mask=head_scale if head_mask is None else head_mask
        )
    return out.transpose(1, 2).contiguous(), weights if output_attentions else None


def _one_dtype(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dtype = autocast_dtype(query.device.type) or value.dtype
    return query.to(dtype), key.to(dtype), value.to(dtype)


def _mask_of_call(
    mask, causal, query, kv_len, position_bias, indices, block_indices, cu_seq_lens_q, cu_seq_lens_k, module
) -> tuple[Tensor | None, bool]:
    """One mask of everything that masks or biases, and whether causal applies besides."""
    batch, heads, q_len, _ = query.shape
    if mask is not None:
        if mask.ndim != 4:
            raise ValueError(f"mtl4 attention: expected attention_mask with 4 dimensions, got {list(mask.shape)}")
        mask, causal = mask[..., :kv_len], False
        if mask.dtype == torch.float64:
            mask = mask.to(torch.promote_types(query.dtype, torch.float32))
    packed = cu_seq_lens_q is not None and cu_seq_lens_k is not None
    # An additive mask that comes with packed sequences (continuous batching) already separates them.
    if packed and (mask is None or mask.dtype == torch.bool):
        if batch != 1:
            raise NotImplementedError(f"mtl4 attention: expected batch 1 with cu_seq_lens_q, got {batch}")
        mask = masks.intersect(mask, masks.segment_mask(cu_seq_lens_q, cu_seq_lens_k, q_len, kv_len, causal))
        causal = False
    if indices is not None:
        mask = masks.intersect(mask, masks.selection_mask(indices, kv_len))
    if block_indices is not None:
        block_size = module.indexer.block_size
        mask = masks.intersect(mask, masks.block_selection_mask(block_indices, block_size, heads, kv_len))
    if position_bias is not None:
        mask = masks.add_bias(mask, position_bias[..., :kv_len])
    return mask, causal


def _warn_of_unknown(kwargs: dict) -> None:
    unknown = [name for name, given in kwargs.items() if given is not None and name not in _MEANINGLESS | _warned]
    if unknown and not torch.compiler.is_compiling():
        _warned.update(unknown)
        warnings.warn(
            f"mtl4 attention: ignored {', '.join(unknown)}, which this version does not know; check the result against "
            'attn_implementation="eager"',
            stacklevel=3,
        )
