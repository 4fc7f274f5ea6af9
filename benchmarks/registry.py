"""What is timed: for each op its inputs, its work in FLOPs and bytes, its peer, and what it is meant to reach."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle

import torch
import torch.nn.functional as F

import torch_mtl4

COLD = 256e6  # bytes of weights to walk through, so that no cache level holds them from one call to the next


@dataclass(frozen=True)
class Case:
    """One line of the table. `make` returns the callables to time, "ours" and the peer, on equal inputs."""

    op: str
    name: str
    dtype: str
    flops: float
    bytes: float
    peer: str
    make: Callable[[], dict[str, Callable[[], object]]] = field(repr=False)
    goal: float | None = None  # how many times the peer's speed

    @property
    def tests(self) -> str:
        """Where the tests of the op are, which run before it is timed."""
        return "tests/ops"


def cases() -> Iterator[Case]:
    """Yields every case."""
    for rows, k, n in ((1, 4096, 11008), (1, 4096, 28672), (1, 8192, 28672)):
        yield linear(rows, k, n, goal=2.3)
    for rows in (8, 16, 32, 64):
        yield linear(rows, 4096, 11008, goal=1.0)
    yield linear(512, 4096, 4096, goal=0.9)
    yield linear(512, 4096, 11008, goal=0.9)
    for dtype, full, causal in ((torch.bfloat16, 1.5, 2.0), (torch.float32, 1.0, 1.5)):
        for heads, length, dim in ((16, 1024, 64), (32, 512, 128)):
            yield prefill(heads, length, dim, dtype, causal=False, goal=full)
            yield prefill(heads, length, dim, dtype, causal=True, goal=causal)
    yield decode(torch.bfloat16, goal=12)
    yield decode(torch.float32, goal=4)
    yield quantize(4096, 11008)


def linear(rows: int, k: int, n: int, goal: float) -> Case:
    """mxfp8_linear beside F.linear with the weight in bfloat16."""

    def make():
        x = torch.randn(rows, k).bfloat16()
        weight = (torch.randn(n, k) / k**0.5).bfloat16()
        data, scale = torch_mtl4.mxfp8_quantize(weight)
        ours = cycle([(data.clone(), scale.clone()) for _ in range(copies(data.nbytes))])
        theirs = cycle([weight.clone() for _ in range(copies(weight.nbytes))])
        return {
            "ours": lambda: torch_mtl4.mxfp8_linear(x, *next(ours)),
            "peer": lambda: F.linear(x, next(theirs)),
        }

    moved = n * k * (1 + 1 / 32) + 2 * rows * (k + n)
    name = f"{rows} row{'s' * (rows > 1)}, {k} to {n}"
    return Case("mxfp8_linear", name, "bfloat16", 2 * rows * k * n, moved, "F.linear, bfloat16", make, goal)


def copies(nbytes: int) -> int:
    """How many copies of a tensor make up more than the caches hold."""
    return max(1, round(COLD / nbytes))


def prefill(heads: int, length: int, dim: int, dtype: torch.dtype, *, causal: bool, goal: float) -> Case:
    """flash_attention beside F.scaled_dot_product_attention."""

    def make():
        q, k, v = (torch.randn(1, heads, length, dim).to(dtype) for _ in range(3))
        return {
            "ours": lambda: torch_mtl4.flash_attention(q, k, v, causal="upper_left" if causal else None),
            "peer": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        }

    flops = 4 * heads * length * length * dim * (0.5 if causal else 1)
    moved = 4 * heads * length * dim * dtype.itemsize
    name = f"1x{heads}x{length}x{dim}{', causal' if causal else ''}"
    return Case("flash_attention", name, str(dtype)[6:], flops, moved, "F.scaled_dot_product_attention", make, goal)


def decode(dtype: torch.dtype, goal: float, heads: int = 32, kv_heads: int = 8, keys: int = 8192, dim: int = 128):
    """One query row with grouped heads over a long cache."""

    def make():
        q = torch.randn(1, heads, 1, dim).to(dtype)
        size = kv_heads * keys * dim * dtype.itemsize * 2
        caches = [[torch.randn(1, kv_heads, keys, dim).to(dtype) for _ in "kv"] for _ in range(copies(size))]
        ours, theirs = cycle(caches), cycle(caches)
        return {
            "ours": lambda: torch_mtl4.flash_attention(q, *next(ours)),
            "peer": lambda: F.scaled_dot_product_attention(q, *next(theirs), enable_gqa=True),
        }

    moved = 2 * kv_heads * keys * dim * dtype.itemsize
    name = f"decode, {heads} heads on {kv_heads}, {keys} keys, {dim}"
    flops = 4 * heads * keys * dim
    return Case("flash_attention", name, str(dtype)[6:], flops, moved, "F.scaled_dot_product_attention", make, goal)


def quantize(n: int, k: int) -> Case:
    """mxfp8_quantize beside a plain copy, which moves the same bytes in and more out."""

    def make():
        x = torch.randn(n, k).bfloat16()
        return {"ours": lambda: torch_mtl4.mxfp8_quantize(x), "peer": x.clone}

    return Case("mxfp8_quantize", f"{n} x {k}", "bfloat16", 0, n * k * (2 + 1 + 1 / 32), "Tensor.clone", make)
