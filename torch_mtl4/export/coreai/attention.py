"""flash_attention in the IR of Core AI."""

import torch
from torch import fx

from torch_mtl4.export.coreai.attention_kernels import FEWEST_KEYS, Attention, kernels_of
from torch_mtl4.export.coreai.emit import Operand
from torch_mtl4.export.coreai.lowering import LoweredNode, largest, smallest

_MOST = 4096  # more queries do not change the plan; for more keys it would cut them into more parts


def lower(node: LoweredNode) -> list[Operand]:
    (query, query_first), (key, key_first), (value, value_first) = (
        _rows_first(node, name) for name in ("query", "key", "value")
    )
    mask, sinks, alibi = _mask(node), node.operand("sinks"), node.operand("alibi_slopes")
    node.check_not_empty(query=query, key=key, value=value, attn_mask=mask)
    (batch, heads, q_len, head_dim), (_, kv_heads, kv_len, _), (*_, v_head_dim) = (
        node.arguments[name].meta["val"].shape for name in ("query", "key", "value")
    )
    if alibi is not None and len(alibi.shape) == 1:
        alibi = node.reshape(alibi, (1, heads))
    attention = Attention(
        dtype=query.dtype,
        batch=smallest(batch),
        heads=node.known("heads", heads),
        kv_heads=node.known("heads", kv_heads),
        q_len=largest(q_len, _MOST),
        kv_len=largest(kv_len, _MOST),
        head_dim=node.known("head dim", head_dim),
        v_head_dim=node.known("head dim", v_head_dim),
        mask=None if mask is None else mask.dtype,
        sinks=sinks is not None,
        alibi=alibi is not None,
        causal=node.number("causal"),
        window=(node.number("window_left"), node.number("window_right")),
        scale=node.number("scale"),
        softcap=node.number("softcap"),
        rows_first=(query_first, key_first, value_first),
        short=smallest(kv_len) < FEWEST_KEYS,
    )
    kernels = kernels_of(attention, node.emission.caps)
    if len(kernels) == 1:
        out, lse = node.call(kernels[0], query, key, value, mask, sinks, alibi)
    else:
        (partials,) = node.call(kernels[0], query, key, value, mask, alibi)
        out, lse = node.call(kernels[1], partials, sinks)
    return [node.permute(out, (0, 2, 1, 3)), lse]


def swaps_heads_and_rows(node: fx.Node) -> bool:
    """Whether it turns [B, L, H, D] into [B, H, L, D], or back."""
    if node.target == torch.ops.aten.permute.default:
        return [d % 4 for d in node.args[1]] == [0, 2, 1, 3]
    return node.target == torch.ops.aten.transpose.int and {d % 4 for d in node.args[1:]} == {1, 2}


def _rows_first(node: LoweredNode, name: str) -> tuple[Operand, bool]:
    """The operand as it stands before heads and rows were swapped, if they were: kernels read either."""
    source = node.arguments[name]
    if swaps_heads_and_rows(source):
        return node.operand_of(source.args[0]), True
    return node.operand_of(source), False


def _mask(node: LoweredNode) -> Operand | None:
    """The mask of four dimensions, not expanded; bools as bytes."""
    source = node.arguments["attn_mask"]
    if source is None:
        return None
    while source.target == torch.ops.aten.expand.default:
        source = source.args[0]
    mask = node.operand_of(source)
    mask = node.reshape(mask, (1,) * (4 - len(mask.shape)) + mask.shape)
    return node.cast(mask, torch.uint8) if mask.dtype == torch.bool else mask
