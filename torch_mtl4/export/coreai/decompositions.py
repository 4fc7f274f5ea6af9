"""Operations that models trace to and Core AI lacks, by others that it has."""

import torch
from torch import Tensor


def _bucketize(x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    x = x[..., None]
    below = boundaries <= x if right else boundaries < x
    return below.to(torch.int32 if out_int32 else torch.int64).sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    windows = (x.shape[dimension] - size) // step + 1
    starts = range(0, windows * step, step)
    return torch.stack([x.narrow(dimension, s, size).movedim(dimension, -1) for s in starts], dimension % x.dim())


def _is_all_true(x: Tensor) -> Tensor:
    return x.all()


def _reciprocal(x: Tensor) -> Tensor:
    # Core AI's is of floats only.
    return NotImplemented if x.is_floating_point() or x.is_complex() else 1.0 / x.to(torch.get_default_dtype())


def ours() -> dict:
    """op -> its decomposition, beside those of coreai-torch."""
    aten = torch.ops.aten
    return {
        aten.bucketize.Tensor: _bucketize,
        aten.unfold.default: _unfold,
        aten._is_all_true.default: _is_all_true,
        aten.reciprocal.default: _reciprocal,
    }
