"""The ops on the MSL runner: the plan and the Metal sources of a GPU, executed on the CPU.

What runs on a Mac is `contract -> plan -> kernel`; here all three are the same, and only the encoder is another. It is
slow, and made for proving kernels: `with emulated("g17s macos26.2 tensor_ops"): ...` turns the ops on CPU tensors into
what that GPU would be given.
"""

import functools
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from torch_mtl4 import _metal_sources, _ops, msl
from torch_mtl4.ops.flash_attention import to_float32_mask

_SENTINEL = {torch.uint8: 0xA5}


@dataclass
class Emulation:
    """How kernels run, and what was found.

    Attributes:
        caps: of the GPU that is played, as csrc/plan/device_caps.h reads them.
        checked: watch every memory access; findings raise.
        layout: of cooperative tensors; None: the one of the GPU.
        shuffle, seed: a random order of threads.
        count: count what every dispatch costs, by the rules of msl/cost.py.
        dispatches: (kernel, result) of every dispatch so far.
    """

    caps: str
    checked: bool = True
    layout: str | None = None
    shuffle: bool = False
    seed: int = 1
    count: bool = False
    dispatches: list[tuple[str, msl.DispatchResult]] = field(default_factory=list)

    @property
    def costs(self) -> list[msl.Cost]:
        """What each dispatch cost so far, in their order; MslError if they were not counted."""
        if not self.count:
            raise msl.MslError("costs: expected an Emulation with count=True, got one that does not count")
        return [result.cost for _, result in self.dispatches]

    def tier(self, language: str) -> str:
        """The runner's name of the system: the newest that it knows up to that of the caps."""
        system = next(word for word in self.caps.split() if word.startswith("macos"))
        wanted = _version(system)
        known = [name for name in msl.TIERS if _version(name) <= wanted]
        return f"{max(known, key=_version)}:{language}"

    def run(self, plan: str, tensors: dict[str, Tensor | None], outputs: tuple[str, ...]) -> None:
        """Executes a plan. Outputs start as NaN, bytes as a sentinel.

        Raises:
            AssertionError: the checks found something.
        """
        plan = json.loads(plan)
        tensors = dict(tensors)
        for name in outputs:
            tensors[name].fill_(_SENTINEL.get(tensors[name].dtype, float("nan")))
        for name, size in plan["scratch"]:
            tensors[name] = torch.full((size,), 0xFF, dtype=torch.uint8)  # as floats they are NaN
        written = {*outputs, *(name for name, _ in plan["scratch"])}
        for step in plan["passes"]:
            library = _library(
                plan["source"],
                step["kernel"],
                tuple((name, value) for _, name, value in step["constants"]),
                self.tier(plan["language"]),
                self.checked,
                self.count,
            )
            buffers = {
                index: msl.Output(tensors[name]) if name in written else tensors[name]
                for index, name in step["arguments"]
            }
            index, params = step["params"]
            buffers[index] = bytes.fromhex(params)
            result = library.kernel(step["kernel"]).dispatch(
                tuple(step["groups"]),
                tuple(step["threads"]),
                buffers,
                layout=self.layout or self._layout(),
                shuffle=self.shuffle,
                seed=self.seed,
            )
            self.dispatches.append((step["kernel"], result))
            written -= {name for _, name in step["arguments"]}  # a later pass reads what this one wrote
            if result.report:
                raise AssertionError(f"{step['kernel']} on {self.caps}:\n{result.report}")

    def _layout(self) -> str:
        generation = int("".join(c for c in self.caps.split()[0] if c.isdigit()))
        return "m5" if generation >= 17 else "pre_m5"


@contextmanager
def emulated(caps: str, **options) -> Iterator[Emulation]:
    """Within it the ops of this package compute on CPU tensors what a GPU of these caps would be given.

    Args:
        caps: such as "g13g macos14" or "g17s macos26.2 tensor_ops".
        options: the other attributes of Emulation.

    Yields:
        The Emulation.
    """
    emulation = Emulation(caps, **options)
    library = torch.library.Library("torch_mtl4", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators,  other operators may also be overr")
            for name, implementation in _IMPLEMENTATIONS.items():
                library.impl(name, functools.partial(implementation, emulation), "CPU", allow_override=True)
        yield emulation
    finally:
        library._destroy()


@functools.lru_cache(maxsize=512)
def _library(source: str, kernel: str, constants: tuple, tier: str, checked: bool, count: bool) -> msl.Library:
    return msl.compile(
        _metal_sources.flattened(source),
        name=f"{source}.metal",
        constants=dict(constants),
        only=f"^{kernel}$",
        tier=tier,
        checked=checked,
        count=count,
    )


def _version(system: str) -> tuple[int, ...]:
    return tuple(int(n) for n in system.removeprefix("macos").split("."))


def _mxfp8_quantize(emulation: Emulation, x: Tensor, scaling: str = "rceil") -> tuple[Tensor, Tensor]:
    x = x.contiguous()
    plan = _ops.mxfp8_quantize_plan(x, scaling, emulation.caps)
    data = torch.empty(x.shape, dtype=torch.uint8)
    scale = torch.empty((*x.shape[:-1], (x.shape[-1] + 31) // 32), dtype=torch.uint8)
    if data.numel():
        emulation.run(plan, {"x": x, "data": data, "scale": scale}, ("data", "scale"))
    return data, scale


def _mxfp8_dequantize(emulation: Emulation, data: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    data, scale = data.contiguous(), scale.contiguous()
    plan = _ops.mxfp8_dequantize_plan(data, scale, dtype, emulation.caps)
    out = torch.empty(data.shape, dtype=dtype)
    if out.numel():
        emulation.run(plan, {"data": data, "scale": scale, "out": out}, ("out",))
    return out


def _flash_attention(
    emulation: Emulation, query, key, value, attn_mask=None, causal=None, window_left=-1, window_right=-1, scale=None,
    softcap=None, sinks=None, alibi_slopes=None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    query, key, value = (t if t.stride(-1) == 1 or t.shape[-1] == 1 else t.contiguous() for t in (query, key, value))
    if attn_mask is not None and attn_mask.dtype == torch.float64:
        attn_mask = to_float32_mask(attn_mask)
    batch, heads, q_len, _ = query.shape
    out = query.new_empty(batch, q_len, heads, value.shape[3]).transpose(1, 2)
    lse = query.new_empty(batch, heads, q_len, dtype=torch.float32)
    if lse.numel():
        options = (attn_mask, causal, window_left, window_right, scale, softcap, sinks, alibi_slopes)
        plan = _ops.flash_attention_plan(query, key, value, *options, emulation.caps)
        tensors = {
            "query": query, "key": key, "value": value, "attn_mask": attn_mask, "sinks": sinks,
            "alibi_slopes": alibi_slopes, "out": out, "lse": lse,
        }  # fmt: skip
        emulation.run(plan, tensors, ("out", "lse"))
    return out, lse


def _mxfp8_linear(
    emulation: Emulation, x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None = None
) -> Tensor:
    _ops.mxfp8_linear_plan(x, weight, weight_scale, bias, emulation.caps)  # the contract, before anything is copied
    x, weight, weight_scale = x.contiguous(), _rows_dense(weight), _rows_dense(weight_scale)
    plan = _ops.mxfp8_linear_plan(x, weight, weight_scale, bias, emulation.caps)
    out = x.new_empty((*x.shape[:-1], weight.shape[0]))
    if out.numel():
        tensors = {"x": x, "weight": weight, "weight_scale": weight_scale, "bias": bias, "out": out}
        emulation.run(plan, tensors, ("out",))
    return out


def _rows_dense(t: Tensor) -> Tensor:
    return t if t.shape[1] <= 1 or t.stride(1) == 1 else t.contiguous()


_IMPLEMENTATIONS: dict[str, Callable] = {
    "flash_attention": _flash_attention,
    "mxfp8_quantize": _mxfp8_quantize,
    "mxfp8_dequantize": _mxfp8_dequantize,
    "mxfp8_linear": _mxfp8_linear,
}
