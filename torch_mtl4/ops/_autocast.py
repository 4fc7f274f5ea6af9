"""The autocast rule: the operands of the matrix products go to the autocast dtype, everything else keeps its own."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_mtl4 import _ops


def effective_dtype(t: Tensor) -> torch.dtype:
    """The dtype that the kernel sees: autocast's where autocast casts, which float64 never takes part in."""
    if not t.is_floating_point() or t.dtype == torch.float64:
        return t.dtype
    device_type = t.device.type
    if device_type in ("cpu", "mps") and torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return t.dtype


def register(op: Callable[..., Any], operands: Sequence[int]) -> None:
    """Casts the arguments of `op` at the positions `operands` under autocast."""

    def rule(device_type: str) -> Callable[..., Any]:
        def cast_and_call(*args):
            cast = [t.to(effective_dtype(t)) if i in operands and t is not None else t for i, t in enumerate(args)]
            with torch.autocast(device_type, enabled=False):
                return op(*cast)

        return cast_and_call

    name = op._schema.name.split("::")[1]
    _ops.LIBRARY.impl(name, rule("cpu"), "AutocastCPU")
    _ops.LIBRARY.impl(name, rule("mps"), "AutocastMPS")
