"""Interleaved timing, and what the machine could do at best, measured in the same run."""

import statistics
import time
from collections.abc import Callable

import torch


def interleaved(functions: dict[str, Callable], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds a call of each function, one sample a round, the functions taking turns within a round.

    A sample averages as many calls as fill 10 ms. Stops after `rounds`, or after `seconds` but not before 5 rounds.
    """
    calls = {}
    for name, function in functions.items():
        function()
        once = _timed(function, 1)
        calls[name] = max(1, round(0.010 / once))
    samples = {name: [] for name in functions}
    started = time.perf_counter()
    for done in range(rounds):
        if done >= 5 and time.perf_counter() - started > seconds:
            break
        for name, function in functions.items():
            samples[name].append(_timed(function, calls[name]))
    return samples


def _timed(function: Callable, calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - started) / calls


def spread(samples: list[float]) -> dict[str, float]:
    """Median and quartiles in milliseconds."""
    low, median, high = statistics.quantiles(samples, n=4)
    return {"median_ms": median * 1e3, "low_ms": low * 1e3, "high_ms": high * 1e3}


def roofline() -> dict[str, float]:
    """The best that torch itself reaches here: GB/s of reading, and GFLOP/s of matrix products by dtype."""
    big = torch.ones(64 * 2**20)
    readers = {"sum": big.sum, "max": big.max, "dot": lambda: torch.dot(big, big)}
    reads = interleaved(readers, 7, 5)
    out = {"read_gb_s": max(big.nbytes / min(times) for times in reads.values()) / 1e9}
    size = 2048
    for dtype in (torch.float32, torch.bfloat16):
        a, b = (torch.randn(size, size).to(dtype) for _ in "ab")
        times = interleaved({"matmul": lambda a=a, b=b: a @ b}, 5, 5)["matmul"]
        out[f"{str(dtype)[6:]}_gflop_s"] = 2 * size**3 / min(times) / 1e9
    return out
