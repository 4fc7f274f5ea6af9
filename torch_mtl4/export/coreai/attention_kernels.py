"""The kernels of metal/flash_attention/coreai.h that the plan chooses for a call."""

import functools
import json
import re
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from torch_mtl4 import _ops
from torch_mtl4.export.coreai import references
from torch_mtl4.export.coreai.context import EmittedKernel, Launch, Shape, Slot
from torch_mtl4.export.coreai.lowering import ceil_div, example
from torch_mtl4.export.coreai.msl_text import MSL_TYPES, kernel_text, literal

FEWEST_KEYS = 32  # of matmul2d
_ROWS = {"tensor_ops": 64, "prefill": 32}  # of a threadgroup
_KERNEL = re.compile(r"flash_attention_(tensor_ops|prefill|decode|merge)_[a-z]+((?:_\d+)*)")
_PARAMS = struct.Struct("<25q6i2f")  # FlashAttentionParams of metal/flash_attention/params.h
_LEFT, _RIGHT, _SCALE, _SOFTCAP = 22, 23, 31, 32  # in there


class Attention(NamedTuple):
    """All of a call that kernels are chosen by, or that stands in their text.

    Sizes are the largest that there may be, but for the batch, of which it is the smallest.

    Attributes:
        mask: the dtype of attn_mask, uint8 where it is of bools; None without one.
        sinks, alibi: whether there are sinks and alibi_slopes.
        causal, window, scale, softcap: as the op has them.
        rows_first: of query, key and value, whether they come as [B, L, H, D].
        short: whether there may be fewer keys than matmul2d takes.
    """

    dtype: torch.dtype
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    v_head_dim: int
    mask: torch.dtype | None = None
    sinks: bool = False
    alibi: bool = False
    causal: str | None = None
    window: tuple[int, int] = (-1, -1)
    scale: float | None = None
    softcap: float | None = None
    rows_first: tuple[bool, bool, bool] = (False, False, False)
    short: bool = True

    def sizes(self, operands: Sequence[Shape]) -> tuple:
        """B, H, Lq, Hkv, Dv of a call with these operands."""
        batch, heads, q_len, _ = _heads_first(operands[0], self.rows_first[0])
        _, kv_heads, _, v_head_dim = _heads_first(operands[2], self.rows_first[2])
        return batch, heads, q_len, kv_heads, v_head_dim


@functools.lru_cache(maxsize=256)
def kernels_of(a: Attention, caps: str) -> tuple[EmittedKernel, ...]:
    """One kernel, or one that takes the keys in parts and one that merges them. They serve all lengths and batches."""
    passes = json.loads(_plan(a, caps))["passes"]
    family, tile = _KERNEL.fullmatch(passes[0]["kernel"]).groups()
    tile = [int(number) for number in tile.split("_")[1:]]
    splits = passes[0]["groups"][0]
    if family == "decode" and splits > 1:
        return _split(a, passes[0], tile, splits), _merge(a, passes[1], splits)
    if family == "decode":
        groups = functools.partial(_decode_groups, a, 1, tile[1])
        return (_whole(a, passes[0], "CoreAiDecode", tile, groups),)
    groups = functools.partial(_prefill_groups, a, _ROWS[family], tile[-1])
    if family == "tensor_ops":
        return (_whole(a, passes[0], "CoreAiTensorOps", [*tile, a.short], groups),)
    return (_whole(a, passes[0], "CoreAiPrefill", tile, groups),)


def _plan(a: Attention, caps: str) -> str:
    query = example((a.batch, a.heads, a.q_len, a.head_dim), a.dtype)
    key = example((a.batch, a.kv_heads, a.kv_len, a.head_dim), a.dtype)
    value = example((a.batch, a.kv_heads, a.kv_len, a.v_head_dim), a.dtype)
    mask = None if a.mask is None else example((1, 1, 1, 1), torch.bool if a.mask == torch.uint8 else a.mask)
    sinks, alibi = (example((a.heads,), torch.float32) if given else None for given in (a.sinks, a.alibi))
    return _ops.flash_attention_plan(
        query, key, value, mask, a.causal, *a.window, a.scale, a.softcap, sinks, alibi, caps
    )


def _prefill_groups(a: Attention, rows: int, columns: int, operands: Sequence[Shape]) -> Shape:
    batch, heads, q_len, _, v_head_dim = a.sizes(operands)
    return ceil_div(q_len, rows), heads * ceil_div(v_head_dim, columns), batch


def _decode_groups(a: Attention, splits: int, rows: int, operands: Sequence[Shape]) -> Shape:
    batch, heads, q_len, kv_heads, _ = a.sizes(operands)
    return splits, ceil_div(heads // kv_heads * q_len, rows) * kv_heads, batch


def _whole(a: Attention, step: dict, struct: str, tile: Sequence[int | bool], groups: Callable) -> EmittedKernel:
    """A kernel that gives out and lse."""

    def shapes(operands):
        batch, heads, q_len, _, v_head_dim = a.sizes(operands)
        return (batch, q_len, heads, v_head_dim), (batch, heads, q_len)

    inputs = _inputs(a)
    inputs.insert(-1, (Slot("sinks", torch.float32, 1), a.sinks))
    reference = functools.partial(references.flash_attention, **_options(a), sinks=a.sinks)
    return _kernel(a, step, struct, [*_types(a), *tile], inputs, _results(a), reference, groups, shapes)


def _split(a: Attention, step: dict, tile: Sequence[int], splits: int) -> EmittedKernel:
    def shapes(operands):
        batch, heads, q_len, _, v_head_dim = a.sizes(operands)
        return ((batch, heads, q_len * splits, v_head_dim + 2),)

    reference = functools.partial(references.flash_attention_split, **_options(a), splits=splits)
    groups = functools.partial(_decode_groups, a, splits, tile[1])
    return _kernel(a, step, "CoreAiDecodeSplit", [*_types(a), *tile, splits], _inputs(a), (_PARTIALS,), reference,
                   groups, shapes)  # fmt: skip


def _merge(a: Attention, step: dict, splits: int) -> EmittedKernel:
    def shapes(operands):
        batch, heads, parts, columns = operands[0]
        return (batch, parts // splits, heads, columns - 2), (batch, heads, parts // splits)

    def groups(operands):
        batch, heads, parts, _ = operands[0]
        return parts // splits, heads, batch

    inputs = [(_PARTIALS, True), (Slot("sinks", torch.float32, 1), a.sinks)]
    reference = functools.partial(references.flash_attention_merge, dtype=a.dtype, splits=splits)
    return _kernel(a, step, "CoreAiMerge", [MSL_TYPES[a.dtype], splits], inputs, _results(a), reference, groups, shapes)


_PARTIALS = Slot("partials", torch.float32, 4)


def _inputs(a: Attention) -> list[tuple[Slot, bool]]:
    """The operands but sinks, and whether the call has them."""
    names = ("query", "key", "value")
    return [
        *((Slot(name, a.dtype, 4), True) for name in names),
        (Slot("mask", a.mask or torch.uint8, 4), a.mask is not None),
        (Slot("alibi_slopes", torch.float32, 2), a.alibi),
    ]


def _results(a: Attention) -> tuple[Slot, Slot]:
    return Slot("out", a.dtype, 4), Slot("lse", torch.float32, 3)


def _types(a: Attention) -> list[str]:
    return [MSL_TYPES[a.dtype], MSL_TYPES[a.mask or torch.uint8]]


def _options(a: Attention) -> dict:
    return {
        "rows_first": a.rows_first,
        "mask": a.mask is not None,
        "alibi": a.alibi,
        "causal": a.causal,
        "window": a.window,
        "scale": a.scale,
        "softcap": a.softcap,
    }


def _kernel(
    a: Attention,
    step: dict,
    struct: str,
    arguments: Sequence[str | int | bool],
    inputs: Sequence[tuple[Slot, bool]],
    results: tuple[Slot, ...],
    reference: Callable,
    groups: Callable[[Sequence[Shape]], Shape],
    shapes: Callable[[Sequence[Shape]], tuple[Shape, ...]],
) -> EmittedKernel:
    """A kernel of coreai.h, specialised as the plan's step is."""
    params = _PARAMS.unpack(bytes.fromhex(step["params"][1]))
    constants = {name: value for _, name, value in step["constants"]} | {
        "softmax_scale": params[_SCALE],
        "softcap": params[_SOFTCAP],
        "upper_left": a.causal == "upper_left",
        "window_left": params[_LEFT],
        "window_right": params[_RIGHT],
    }
    constants |= {f"{name}_rows_first": f for name, f in zip(("query", "key", "value"), a.rows_first, strict=True)}
    threads = tuple(step["threads"])
    entry = f"{struct}<{', '.join(x if isinstance(x, str) else literal(x) for x in arguments)}>"
    name, text = kernel_text(
        "flash_attention", entry, constants, [*inputs, *((slot, True) for slot in results)], threads[0]
    )

    def launch(operands: Sequence[Shape]) -> Launch:
        grid = tuple(g * t for g, t in zip(groups(operands), threads, strict=True))
        return Launch(grid, threads, shapes(operands))

    operands = tuple(slot for slot, given in inputs if given)
    return EmittedKernel("flash_attention", name, text, operands, results, reference, launch)


def _heads_first(shape: Shape, rows_first: bool) -> Shape:
    batch, a, b, columns = shape
    return (batch, b, a, columns) if rows_first else (batch, a, b, columns)
