"""Words that the checks of several ops share. Every one raises, or returns nothing."""

import math
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from torch_mtl4.ops._errors import expected

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def known(number: Any) -> Any:
    """The number behind a symbolic one, which has no text that torch.compile could show in a message."""
    from torch.fx.experimental.symbolic_shapes import guard_scalar  # here, as it imports sympy

    return guard_scalar(number)


def shape(t: Tensor) -> list[int]:
    return [known(size) for size in t.shape]


def tensor(op: str, name: str, value: Any) -> None:
    """A strided torch.Tensor."""
    if not isinstance(value, Tensor):
        expected(TypeError, op, f"{name} a torch.Tensor", type(value).__name__)
    if value.layout != torch.strided:
        expected(NotImplementedError, op, f"{name} of layout torch.strided", value.layout)
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(value).tangent is not None:
        # torch.library would drop the tangent without a word.
        expected(NotImplementedError, op, f"{name} without a tangent (there is no forward-mode derivative)", "one")


def same_device(op: str, name: str, t: Tensor, owner: str, device: torch.device) -> None:
    if t.device != device:
        expected(ValueError, op, f"{name} on the device of {owner}, {device}", t.device)


def float_dtype(op: str, name: str, dtype: torch.dtype) -> None:
    """A dtype that the kernels compute in. float64 is legal, but has no kernel."""
    if dtype == torch.float64:
        expected(NotImplementedError, op, f"{name} of dtype float32, bfloat16 or float16", dtype)
    if dtype not in FLOATS:
        expected(TypeError, op, f"{name} of dtype float32, bfloat16 or float16", dtype)


def real(op: str, name: str, value: Any, *, positive: bool) -> None:
    """A finite number, or None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float, torch.SymFloat, torch.SymInt)):
        expected(TypeError, op, f"{name} a number or None", type(value).__name__)
    if not -math.inf < value < math.inf:  # math.isfinite cannot be traced
        expected(ValueError, op, f"{name} finite", known(value))
    if positive and value <= 0:
        expected(ValueError, op, f"{name} greater than 0", known(value))
