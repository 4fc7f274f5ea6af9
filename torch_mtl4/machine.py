"""What a measurement depends on, for reports: the machine and the versions."""

import platform
import statistics
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch


def describe() -> dict:
    """Returns processor, cores, threads, instruction sets and versions, ready for JSON."""
    from torch_mtl4._native import cpu_isa

    return {
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "isa": {"torch_mtl4": cpu_isa(), "torch": torch.backends.cpu.get_cpu_capability()},
        "python": platform.python_version(),
        "versions": {name: found for name in ("torch", "transformers", "torch_mtl4") if (found := _version(name))},
    }


def faster_dtype() -> dict:
    """Finds which of float32 and bfloat16 multiplies faster here, by the median of interleaved runs."""
    seconds = {torch.float32: [], torch.bfloat16: []}
    operands = {dtype: (torch.randn(256, 1024).to(dtype), torch.randn(1024, 1024).to(dtype)) for dtype in seconds}
    for _ in range(9):
        for dtype, (x, weight) in operands.items():
            started = time.perf_counter()
            torch.nn.functional.linear(x, weight)
            seconds[dtype].append(time.perf_counter() - started)
    medians = {str(dtype).removeprefix("torch."): statistics.median(times) for dtype, times in seconds.items()}
    return {"dtype": min(medians, key=medians.get), "seconds": medians}


def summary(facts: dict) -> str:
    """Returns one line of what `describe` found."""
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return f"{facts['processor']}, {facts['threads']} threads, {facts['system']}; {versions}"


def _processor() -> str:
    if platform.system() == "Darwin":
        return subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=True
        ).stdout.strip()
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
