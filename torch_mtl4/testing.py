"""What tests of kernels share: inputs laid out to catch stray reads, the tolerance policy, and a comparison.

The policy, stated once: a result is right if its error against the upcast reference is at most TWICE the error of
PyTorch's own path in the same dtype, plus a floor. The floor, FLOOR_EPS steps of the dtype at the largest magnitude of
the result, is what remains where PyTorch happens to be exact: one rounding of the result for the half types, and for
float32 also the few ulps of a vectorized exp and of another order of summation. Codecs are compared bit for bit.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

TWICE = 2.0
FLOOR_EPS = {torch.float32: 16.0, torch.bfloat16: 1.0, torch.float16: 1.0}
# For outputs and gradients of whole models, whose layers carry the rounding of one attention on.
MODEL_FLOOR_EPS = {torch.float32: 84.0, torch.bfloat16: 4.0, torch.float16: 4.0}

LAYOUTS = ("dense", "poisoned", "permuted", "transposed", "gapped")


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Normal values that depend on the seed only, drawn in float32 so that dtypes hold roundings of the same ones."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(low: int, high: int, shape: Sequence[int], seed: int) -> Tensor:
    """Whole numbers from low to high that depend on the seed only."""
    return torch.randint(low, high + 1, shape, generator=torch.Generator().manual_seed(seed))


def exact_layer(n: int, k: int, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """An mxfp8 weight of integers up to 15 under scales 1, 2 and 1/2: its bytes, its scale bytes, its values (float64).

    With `exact_x` no sum of products rounds in float32, whatever the order of adding is.
    """
    data = integers(-15, 15, (n, k), seed).float().to(torch.float8_e4m3fn)
    scale = integers(126, 128, (n, (k + 31) // 32), seed + 1).to(torch.uint8)
    values = data.double() * torch.exp2(scale.double() - 127).repeat_interleave(32, 1)[:, :k]
    return data.view(torch.uint8), scale, values


def exact_x(m: int, k: int, dtype: torch.dtype, seed: int = 3) -> Tensor:
    """Integers up to 3."""
    return integers(-3, 3, (m, k), seed).to(dtype)


def poison(*shape: int, dtype: torch.dtype) -> Tensor:
    """A buffer whose every element spoils a result that it reaches: NaN, or 0xFF for bytes."""
    if dtype == torch.bool:
        return torch.ones(*shape, dtype=torch.bool)
    return torch.full(shape, math.nan if dtype.is_floating_point else 255, dtype=dtype)


def lay_out(t: Tensor, layout: str) -> Tensor:
    """A copy of t with the same values and shape, laid out in memory as the name says, inside poison.

    dense: contiguous. poisoned: an inner slice of a larger buffer, last stride 1. permuted: the middle dimensions
    swapped in memory, as models that split heads leave them, at an offset. transposed: the last two dimensions swapped,
    so the last stride is not 1. gapped: every second element of the last dimension.
    """
    if layout == "dense" or t.ndim == 0:
        return t.contiguous().clone()
    if layout == "poisoned":
        buffer = poison(*(size + 3 for size in t.shape), dtype=t.dtype)
        view = buffer[tuple(slice(1, 1 + size) for size in t.shape)]
    elif layout == "permuted":
        order = [*reversed(range(t.ndim - 1)), t.ndim - 1]
        buffer = poison(*(t.shape[i] + 1 for i in order), dtype=t.dtype)
        view = buffer[tuple(slice(1, 1 + t.shape[i]) for i in order)].permute(order)
    elif layout == "transposed":
        if t.ndim == 1:
            return lay_out(t, "gapped")
        view = lay_out(t.mT, "poisoned").mT
    elif layout == "gapped":
        view = poison(*t.shape[:-1], 2 * t.shape[-1] + 1, dtype=t.dtype)[..., 1 : 2 * t.shape[-1] : 2]
    else:
        raise ValueError(f"lay_out: expected layout one of {LAYOUTS}, got {layout!r}")
    return view.copy_(t)


def error_of(baseline: Tensor, truth: Tensor) -> float:
    """The largest error of PyTorch's own result, where both are finite."""
    error = (baseline.double() - truth.double()).abs()
    error = error[error.isfinite()]
    return error.max().item() if error.numel() else 0.0


def allowed_error(baseline_error: float, truth: Tensor, dtype: torch.dtype) -> float:
    """The tolerance policy: the largest absolute error that a result of `dtype` may have."""
    finite = truth[truth.isfinite()]
    size = finite.abs().max().item() if finite.numel() else 0.0
    return TWICE * baseline_error + FLOOR_EPS[dtype] * torch.finfo(dtype).eps * size


def assert_close(actual: Tensor, truth: Tensor, allowed: float, what: str = "result") -> None:
    """Fails at the first element that is further than `allowed` from the truth; NaN and Inf must match."""
    assert actual.shape == truth.shape, f"{what}: expected shape {list(truth.shape)}, got {list(actual.shape)}"
    got, want = actual.detach().double(), truth.detach().double()
    good = (got - want).abs() <= allowed
    good |= (got == want) | (got.isnan() & want.isnan())
    _report(good, got, want, f"{what}: allowed error {allowed:.3g}")


def assert_equal(actual: Tensor, truth: Tensor, what: str = "result") -> None:
    """Fails at the first element whose bits differ; any NaN equals any NaN."""
    assert actual.dtype == truth.dtype, f"{what}: expected dtype {truth.dtype}, got {actual.dtype}"
    assert actual.shape == truth.shape, f"{what}: expected shape {list(truth.shape)}, got {list(actual.shape)}"
    good = actual == truth
    if actual.is_floating_point():
        good &= torch.signbit(actual) == torch.signbit(truth)
        good |= actual.isnan() & truth.isnan()
    _report(good, actual, truth, what)


def _report(good: Tensor, got: Tensor, want: Tensor, what: str) -> None:
    if good.all():
        return
    index = (~good).nonzero()[0].tolist()
    bad = int((~good).sum())
    raise AssertionError(
        f"{what}: at {index} expected {_item(want, index)}, got {_item(got, index)} "
        f"({bad} of {good.numel()} elements are wrong)"
    )


def _item(t: Tensor, index: Sequence[int]) -> object:
    return t[tuple(index)].item()
