"""What flash_attention accepts: one function, called by the public function and by the fake kernel."""

from typing import Any

import torch
from torch import Tensor

from torch_mtl4.ops import _checks as check
from torch_mtl4.ops._autocast import effective_dtype
from torch_mtl4.ops._checks import known, shape
from torch_mtl4.ops._errors import expected

MAX_HEAD_DIM = 576
CAUSAL = ("upper_left", "lower_right")
# The fp8 dtypes are left out: a mask needs -inf, which e4m3 has no code for.
MASK_DTYPES = (torch.bool, torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    causal: str | None,
    window: tuple[int | None, int | None] | None,
    scale: float | None,
    softcap: float | None,
    sinks: Tensor | None,
    alibi_slopes: Tensor | None,
    op: str = "flash_attention",
) -> None:
    """Raises TypeError, ValueError or NotImplementedError for anything that the kernels cannot take."""
    check_operands(op, query, key, value)
    batch, heads, q_len, head_dim = query.shape
    if key.shape[0] != batch or key.shape[3] != head_dim:
        sizes = f"{known(batch)}, Hkv, Lk, {known(head_dim)}"
        expected(ValueError, op, f"key [B, Hkv, Lk, D] = [{sizes}]", shape(key))
    kv_heads, kv_len = key.shape[1], key.shape[2]
    if value.shape[0] != batch or value.shape[1] != kv_heads or value.shape[2] != kv_len:
        sizes = f"{known(batch)}, {known(kv_heads)}, {known(kv_len)}"
        expected(ValueError, op, f"value [B, Hkv, Lk, Dv] = [{sizes}, Dv]", shape(value))
    if (heads % kv_heads if kv_heads else heads) != 0:
        counts = f"H = {known(heads)}, Hkv = {known(kv_heads)}"
        expected(ValueError, op, "a number of query heads that the key heads divide", counts)
    check_head_dim(op, "query", head_dim)
    check_head_dim(op, "value", value.shape[3])

    if attn_mask is not None:
        check_mask(op, query, attn_mask, [batch, heads, q_len, kv_len])
    check_causal(op, causal)
    check_window(op, window)
    check.real(op, "scale", scale, positive=False)
    check.real(op, "softcap", softcap, positive=True)
    if sinks is not None:
        check_per_head(op, "sinks", query, sinks)
        if sinks.ndim != 1 or sinks.shape[0] != heads:
            expected(ValueError, op, f"sinks [H] = [{known(heads)}]", shape(sinks))
    if alibi_slopes is not None:
        check_per_head(op, "alibi_slopes", query, alibi_slopes)
        last = alibi_slopes.ndim - 1
        if last not in (0, 1) or alibi_slopes.shape[last] != heads or (last == 1 and alibi_slopes.shape[0] != batch):
            sizes = f"[H] = [{known(heads)}] or [B, H] = [{known(batch)}, {known(heads)}]"
            expected(ValueError, op, f"alibi_slopes {sizes}", shape(alibi_slopes))


def check_operands(op: str, query: Any, key: Any, value: Any, min_ndim: int = 4, max_ndim: int | None = 4) -> None:
    """Three tensors of one floating dtype, on one device, of legal rank."""
    for name, t in (("query", query), ("key", key), ("value", value)):
        check.tensor(op, name, t)
        check.same_device(op, name, t, "query", query.device)
    dtype = effective_dtype(query)
    check.float_dtype(op, "query", dtype)
    layouts = {"query": "[B, H, Lq, D]", "key": "[B, Hkv, Lk, D]", "value": "[B, Hkv, Lk, Dv]"}
    for name, t in (("query", query), ("key", key), ("value", value)):
        if effective_dtype(t) != dtype:
            expected(TypeError, op, f"{name} of query's dtype {dtype}", t.dtype)
        if max_ndim is not None and t.ndim != max_ndim:
            expected(ValueError, op, f"{name} {layouts[name]}", shape(t))
        if t.ndim < min_ndim:
            expected(ValueError, op, f"{name} with at least {min_ndim} dimensions", shape(t))


def check_head_dim(op: str, name: str, size: int) -> None:
    if size < 1:
        expected(ValueError, op, f"{name} with a head dim of at least 1", known(size))
    if size > MAX_HEAD_DIM:
        expected(NotImplementedError, op, f"{name} with a head dim of at most {MAX_HEAD_DIM}", known(size))


def check_mask(op: str, query: Tensor, mask: Any, sizes: list[int]) -> None:
    """A bool or floating mask that broadcasts to `sizes`, without making them larger."""
    check.tensor(op, "attn_mask", mask)
    if mask.dtype not in MASK_DTYPES:
        expected(TypeError, op, "attn_mask of dtype bool, float32, bfloat16, float16 or float64", mask.dtype)
    check.same_device(op, "attn_mask", mask, "query", query.device)
    extra = len(sizes) - mask.ndim
    if extra < 0 or any(mask.shape[i] != sizes[extra + i] and mask.shape[i] != 1 for i in range(mask.ndim)):
        expected(ValueError, op, f"attn_mask broadcastable to {[known(size) for size in sizes]}", shape(mask))


def check_causal(op: str, causal: Any) -> None:
    if causal is None or (isinstance(causal, str) and causal in CAUSAL):
        return
    error = ValueError if isinstance(causal, str) else TypeError
    expected(error, op, "causal 'upper_left', 'lower_right' or None", repr(causal))


def check_window(op: str, window: Any) -> None:
    if window is None:
        return
    if not isinstance(window, (tuple, list)):
        expected(TypeError, op, "window a pair (left, right) or None", type(window).__name__)
    if len(window) != 2:
        expected(ValueError, op, "window a pair (left, right)", f"{len(window)} values")
    for name, side in zip(("left", "right"), window, strict=True):
        if side is None:
            continue
        if isinstance(side, bool) or not isinstance(side, (int, torch.SymInt)):
            expected(TypeError, op, f"window's {name} side an int or None", type(side).__name__)
        if side < -1:
            expected(ValueError, op, f"window's {name} side 0 or more, or -1 (or None) for unbounded", known(side))


def check_per_head(op: str, name: str, query: Tensor, t: Any) -> None:
    check.tensor(op, name, t)
    if not t.is_floating_point():
        expected(TypeError, op, f"{name} of a floating dtype", t.dtype)
    check.same_device(op, name, t, "query", query.device)
