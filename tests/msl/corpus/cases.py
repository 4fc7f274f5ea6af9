"""A real kernel, its arguments and what numpy says; and the run of one, checked or counted."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from torch_mtl4 import msl


@dataclass
class Case:
    """One kernel instantiation and a dispatch of it. The last output is compared with `expected`.

    `findings` are the kinds that are known of the kernel as its project ships it; `wrong` is for kernels that hard-code
    the lane layout of another GPU and must fail.
    """

    corpus: str
    name: str
    source: str | Path
    kernel: str
    include: tuple[Path, ...]
    groups: tuple[int, ...]
    threadgroup: tuple[int, ...]
    buffers: dict | list
    output: np.ndarray
    expected: np.ndarray
    tolerance: float
    constants: dict = field(default_factory=dict)
    defines: dict = field(default_factory=dict)
    options: dict = field(default_factory=dict)
    threads: tuple[int, ...] | None = None
    findings: frozenset[str] = frozenset()
    wrong: bool = False


@dataclass(frozen=True)
class Outcome:
    corpus: str
    name: str
    kernel: str
    error: float
    tolerance: float
    kinds: tuple[str, ...]
    first_finding: str
    problem: str
    seconds: float
    known: bool


Cases = Callable[[Path], list[Case]]


def run(case: Case) -> Outcome:
    start = time.monotonic()
    error, report, problem = float("inf"), msl.Report(), ""
    try:
        report = _dispatched(case).report
        error = _error(case)
        right = error <= case.tolerance
        if case.wrong and right:
            problem = f"right within {case.tolerance} on a layout that it was not made for"
        elif not case.wrong and not right:
            problem = f"off by {error:.3g}, allowed {case.tolerance}"
    except msl.KernelFaultError as fault:
        report, problem = fault.report, f"ended early: {fault}"
    except msl.MslError as mistake:
        problem = str(mistake)
    if not problem and report.kinds != case.findings:
        problem = f"findings {sorted(report.kinds)}, expected {sorted(case.findings)}"
    findings = list(report)
    return Outcome(
        case.corpus,
        case.name,
        case.kernel,
        error,
        case.tolerance,
        tuple(sorted(report.kinds)),
        str(findings[0]) if findings else "",
        problem,
        time.monotonic() - start,
        bool(case.findings) or case.wrong,
    )


def count(case: Case) -> msl.Cost:
    """What the case costs; AssertionError if its result is wrong, for then the counts mean nothing."""
    cost = _dispatched(case, checked=False, count=True).cost
    if not (error := _error(case)) <= case.tolerance:
        raise AssertionError(f"{case.corpus} {case.name}: off by {error:.3g}, allowed {case.tolerance:.3g}")
    return cost


def _dispatched(case: Case, **options) -> msl.DispatchResult:
    library = msl.compile(
        case.source,
        name=f"{case.name.split()[0]}.metal",
        include=case.include,
        defines=case.defines,
        constants=case.constants,
        only=f"^{re.escape(case.kernel)}$",
        **options,
    )
    grid = {"groups": case.groups} if case.threads is None else {"threads": case.threads}
    return library.kernel(case.kernel).dispatch(
        threadgroup=case.threadgroup, buffers=case.buffers, **grid, **case.options
    )


def _error(case: Case) -> float:
    difference = np.abs(case.output.astype(np.float64) - case.expected.astype(np.float64))
    return float(difference.max(initial=0))


def attention(q, k, v, scale, causal=False, mask=None):
    k, v = (np.repeat(t, q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = np.einsum("bhld,bhsd->bhls", q.astype(np.float32), k.astype(np.float32)) * scale
    if causal:
        rows, columns = np.indices(scores.shape[2:])
        scores = np.where(columns > rows, -np.inf, scores)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhls,bhsd->bhld", p / p.sum(-1, keepdims=True), v.astype(np.float32))


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)
