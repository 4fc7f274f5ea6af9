"""Attention masks: the mask function of the name "mtl4", and masks built from a call's other arguments."""

import torch
from torch import Tensor


def create_mask(
    batch_size: int,
    kv_length: int,
    kv_offset: int = 0,
    *,
    q_length: int | None = None,
    q_offset: int | Tensor = 0,
    cache_position: Tensor | None = None,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    **kwargs,
) -> Tensor | None:
    """The mask of one forward pass, for transformers' AttentionMaskInterface.

    None only stands for plain causal attention aligned at the lower right (the last query sees the last key) or, for
    bidirectional masks, for no mask at all. The attention function relies on that: unlike in transformers' own mask
    function for sdpa, None never means "the keys after the queries are empty cache slots".

    Whether a padding mask masks anything is read from its values, as transformers does: one read of the device a
    prefill, none a decoded token.

    Args:
        batch_size, kv_length, kv_offset, q_length, q_offset, attention_mask, local_size, allow_is_causal_skip: as
            transformers 5 passes them.
        cache_position: [Lq] int, transformers 4.57 passes it in place of q_length and q_offset.
        **kwargs: passed on to transformers' function.

    Returns:
        bool [B, 1, Lq, Lk], True = attend, with a stride of 0 where it does not depend on the batch; or None.
    """
    from transformers.masking_utils import sdpa_mask

    if cache_position is not None:
        positions = {"cache_position": cache_position}
        q_length = cache_position.shape[0]
        # The offset is a value on the device here; a length equal to the keys' can only start at 0, and a single query
        # is masked by its caller when the cache has empty slots.
        ends_with_last_key = q_length in (1, kv_length)
    else:
        positions = {"q_length": q_length, "q_offset": q_offset}
        ends_with_last_key = isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length
    if (
        allow_is_causal_skip
        and ends_with_last_key
        and (local_size is None or kv_length < local_size)
        and _known_to_mask_nothing(attention_mask, kv_length, kv_offset, q_length)
    ):
        return None
    return sdpa_mask(
        batch_size=batch_size,
        kv_length=kv_length,
        kv_offset=kv_offset,
        attention_mask=attention_mask,
        local_size=local_size,
        allow_is_causal_skip=False,
        **positions,
        **kwargs,
    )


def _known_to_mask_nothing(padding: Tensor | None, kv_length: int, kv_offset: int, q_length: int) -> bool:
    if padding is None:
        return True
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or type(padding) is not Tensor:
        return False
    if padding.device.type != "cpu" and q_length == 1:
        return False
    visible = padding[:, kv_offset : kv_offset + kv_length]
    return visible.shape[1] == kv_length and bool(visible.all())


def segment_mask(cu_seq_lens_q: Tensor, cu_seq_lens_k: Tensor, q_len: int, kv_len: int, causal: bool) -> Tensor:
    """Which keys of packed sequences a query sees: those of its own sequence, up to its own position if causal.

    Args:
        cu_seq_lens_q, cu_seq_lens_k: [sequences + 1] int, where each sequence starts, and the end of the last.
        q_len, kv_len: how many tokens are packed.
        causal: aligned at the lower right within each sequence.

    Returns:
        bool [1, 1, Lq, Lk].
    """
    q_distance, q_segment = _distance_to_end(cu_seq_lens_q, q_len)
    k_distance, k_segment = _distance_to_end(cu_seq_lens_k, kv_len)
    mask = q_segment[:, None] == k_segment
    if causal:
        mask = mask & (k_distance >= q_distance[:, None])
    return mask[None, None]


def _distance_to_end(cu_seq_lens: Tensor, length: int) -> tuple[Tensor, Tensor]:
    position = torch.arange(length, device=cu_seq_lens.device)
    ends = cu_seq_lens[1:].contiguous()
    segment = torch.bucketize(position, ends, right=True)
    # Tokens behind the last sequence form one more.
    ends = torch.cat([ends, ends.new_full((1,), length)])
    return ends[segment] - position, segment


def selection_mask(indices: Tensor, kv_len: int) -> Tensor:
    """The mask of a sparse attention that names the keys each query sees.

    Args:
        indices: [B, Lq, n] or [B, groups, Lq, n] int, key positions; negative entries name none.
        kv_len: how many keys there are.

    Returns:
        bool [B, 1, Lq, Lk] or [B, groups, Lq, Lk], True = named.
    """
    if indices.ndim == 3:
        indices = indices[:, None]
    indices = indices.long()
    # Entries that name no key land in a column of their own, which is cut off.
    named = torch.where((indices < 0) | (indices >= kv_len), kv_len, indices)
    mask = torch.zeros(*indices.shape[:-1], kv_len + 1, dtype=torch.bool, device=indices.device)
    return mask.scatter(-1, named, True)[..., :kv_len]


def block_selection_mask(block_indices: Tensor, block_size: int, heads: int, kv_len: int) -> Tensor:
    """The mask of a sparse attention that names the blocks of keys each query sees.

    Args:
        block_indices: [B, groups, Lq, n] int, blocks; negative entries name none.
        block_size: keys in a block.
        heads: query heads; each group of heads shares one selection.
        kv_len: how many keys there are.

    Returns:
        bool [B, heads, Lq, Lk], True = in a named block.
    """
    blocks = selection_mask(block_indices, -(-kv_len // block_size))
    keys = blocks.repeat_interleave(block_size, dim=-1)[..., :kv_len]
    return keys.repeat_interleave(heads // keys.shape[1], dim=1)


def intersect(mask: Tensor | None, visible: Tensor) -> Tensor:
    """A mask, bool or additive, that also hides what the bool `visible` hides."""
    if mask is None:
        return visible
    if mask.dtype == torch.bool:
        return mask & visible
    return torch.where(visible, mask, float("-inf"))


def add_bias(mask: Tensor | None, bias: Tensor) -> Tensor:
    """An additive mask: the bias, and what the bool or additive mask says on top."""
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        return torch.where(mask, bias, float("-inf"))
    return bias + mask
