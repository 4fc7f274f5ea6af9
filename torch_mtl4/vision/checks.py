"""Words that the checks of torch_mtl4.vision share. Every one raises, or returns nothing."""

import math
from typing import Any

from torch import Tensor

from torch_mtl4.ops import _checks
from torch_mtl4.ops._errors import expected


def number(op: str, name: str, value: Any) -> None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        expected(TypeError, op, f"{name} a number", type(value).__name__)
    if not -math.inf < value < math.inf:  # math.isfinite cannot be traced
        expected(ValueError, op, f"{name} finite", value)


def pixels(op: str, name: str, t: Tensor) -> None:
    if t.dim() < 2 or t.shape[-1] < 1 or t.shape[-2] < 1:
        expected(ValueError, op, f"{name} [..., H, W] with pixels", _checks.shape(t))
