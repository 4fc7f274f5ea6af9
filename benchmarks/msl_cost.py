"""What our Metal kernels do beside their peers' on the same shapes, counted on the MSL runner: `make msl-cost`.

Nothing is timed. The kernels of MLX, PyTorch and llama.cpp come from PyPI into the cache of `make msl-corpus`, and run
on the same arrays as ours; a result that is wrong ends the run. torch_mtl4/msl/cost.py defines the counts.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import render
from benchmarks.run import commit
from tests.msl.corpus import peers, sources
from tests.msl.corpus.__main__ import default_cache
from tests.msl.corpus.cases import count
from torch_mtl4 import flash_attention, msl, mxfp8_dequantize, mxfp8_linear, mxfp8_quantize
from torch_mtl4.msl.compilers import find_compiler
from torch_mtl4.msl_backend import emulated

OURS = "torch_mtl4"
GPUS = {
    "simdgroup": "g13g macos14",
    "tensor_ops": "g17s macos26.2 tensor_ops",
    "scale_planes": "g17s macos27 tensor_ops scale_planes",
}
SCALED = (
    "So that a case takes seconds: attention of one batch and one head (decoding: 4 heads on one of keys) and of 512 "
    "queries also for 2048 keys, linear with K 1024 and N 512; both sides have the same shape."
)


@dataclass(frozen=True)
class Case:
    """A call of ours and the peers' dispatches for it.

    Attributes:
        ours: makes the call on CPU tensors; its result is compared with `expected`.
        peers: by name.
    """

    op: str
    shape: str
    tier: str
    ours: Callable[[], torch.Tensor]
    expected: Callable[[], torch.Tensor]
    peers: Callable[[], peers.Peers]


def attention(cache: Path, tier: str, heads: int, q_len: int, kv_len: int, dim: int) -> Case:
    """flash_attention of float16, one head of keys."""
    torch.manual_seed(1)
    query, (key, value) = torch.randn(1, heads, q_len, dim).half(), torch.randn(2, 1, 1, kv_len, dim).half()
    arrays = [t.numpy() for t in (query, key, value)]
    if q_len == 1:
        shape, others = f"decode 1 x {kv_len}, {heads} heads a key head, D {dim}", lambda: peers.decode(cache, *arrays)
    else:
        shape = f"prefill {q_len} x {kv_len}, D {dim}"
        others = lambda: peers.prefill(cache, *arrays, matmul2d=tier != "simdgroup")  # noqa: E731
    return Case(
        "flash_attention",
        shape,
        tier,
        lambda: flash_attention(query, key, value),
        lambda: torch.nn.functional.scaled_dot_product_attention(*map(torch.Tensor.float, (query, key, value))),
        others,
    )


def linear(cache: Path, tier: str, m: int, n: int = 512, k: int = 1024) -> Case:
    """mxfp8_linear of float16."""
    torch.manual_seed(1)
    x, (data, scale) = torch.randn(m, k).half(), mxfp8_quantize(torch.randn(n, k))
    numbers = mxfp8_dequantize(data, scale, dtype=torch.float32)
    arrays = [t.numpy() for t in (x, data.view(torch.uint8), scale.view(torch.uint8), numbers)]
    return Case(
        "mxfp8_linear",
        f"M {m}, N {n}, K {k}",
        tier,
        lambda: mxfp8_linear(x, data, scale),
        lambda: x.float() @ numbers.T,
        lambda: peers.linear(cache, *arrays, matmul2d=tier != "simdgroup"),
    )


def cases(cache: Path) -> Iterator[Case]:
    """Each tier where its kernels are others than those before."""
    for dim in (64, 128):
        for kv_len in (512, 2048):
            for tier in ("simdgroup", "tensor_ops"):
                yield attention(cache, tier, 1, 512, kv_len, dim)
        yield attention(cache, "simdgroup", 4, 1, 4096, dim)
    yield linear(cache, "simdgroup", 1)
    for m in (32, 512):
        for tier in GPUS:
            yield linear(cache, tier, m)


def figures(costs: list[msl.Cost], outputs: int) -> dict:
    """The counts of all dispatches of a call, summed."""
    total = {
        "device_read": sum(c.device_read for c in costs),
        "device_read_unique": sum(c.device_unique_read for c in costs),
        "device_written": sum(c.device_written for c in costs),
        "device_written_unique": sum(c.device_unique_written for c in costs),
        "threadgroup_read": sum(c.threadgroup_read for c in costs),
        "threadgroup_written": sum(c.threadgroup_written for c in costs),
        "threadgroup_barriers": sum(c.threadgroup_barriers for c in costs),
        "simdgroup_barriers": sum(c.simdgroup_barriers for c in costs),
        "multiply_accumulates": sum(c.multiply_accumulates for c in costs),
        "simdgroup_operations": sum(sum(c.simdgroup_operations.values()) for c in costs),
        "matrix_operations": sum(p.operations for c in costs for p in c.products.values()),
    }
    return {"kernels": [c.kernel for c in costs], "outputs": outputs, **total}


def count_ours(case: Case) -> dict:
    """Our kernels' figures; AssertionError if the result is not that of the case."""
    expected = case.expected()
    with emulated(GPUS[case.tier], checked=False, count=True) as emulation:
        out = case.ours()
    error = (out.float() - expected).abs().max().item()
    if not error <= 0.01 * expected.abs().max().item():
        raise AssertionError(f"{case.op} {case.shape} on {case.tier}: off by {error:.3g}")
    return {"name": OURS, **figures(emulation.costs, out.numel())}


def count_case(case: Case) -> dict:
    """One case as JSON, ours first."""
    found = [count_ours(case)]
    for name, dispatches in case.peers().items():
        found.append({"name": name, **figures([count(d) for d in dispatches], dispatches[-1].output.size)})
    return {"op": case.op, "shape": case.shape, "tier": case.tier, "kernels": found}


def table(result: dict) -> Table:
    """All cases, ours first, with a mark where the best of the peers does with less."""
    shown = Table("case", "kernel", title="Per output element")
    for column in render.COUNTS:
        shown.add_column(column, justify="right")
    for case in result["cases"]:
        marks, title = render.more(case), f"{case['op']} {case['shape']}, {case['tier']}"
        for i, kernel in enumerate(case["kernels"]):
            name = kernel["name"] + f" [red](more {' and '.join(marks)})[/]" * bool(marks and not i)
            last = kernel is case["kernels"][-1]
            shown.add_row("" if i else title, name, *render.per_output(kernel), end_section=last)
    return shown


def main() -> None:
    """Counts, prints the table, writes the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.msl_cost", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="cases whose 'op shape tier' contains this")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="downloads and sources (%(default)s)")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "msl_cost.json")
    arguments, console = parser.parse_args(), Console()
    result = {
        "schema": 1,
        "kind": "msl_cost",
        "date": datetime.now(timezone.utc).date().isoformat(),
        **commit(),
        "compiler": find_compiler().version,
        "packages": {p.name: p.version for p, _ in sources.CORPORA.values()},
        "gpus": GPUS,
        "scaled": SCALED,
        "cases": [],
    }
    for case in cases(arguments.cache):
        if arguments.only in (name := f"{case.op} {case.shape} {case.tier}"):
            with console.status(name):
                result["cases"].append(count_case(case))
    console.print(table(result))
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    console.print(f"written: {arguments.json}")


if __name__ == "__main__":
    main()
