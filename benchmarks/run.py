"""Runs the benchmarks and writes one JSON file: `python -m benchmarks.run [--isa avx512] [--only mxfp8]`.

The tests of the ops run first: a fast wrong answer is not a result.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).parent
# What a smaller processor would offer, as this package, oneDNN and ATen each name it.
CAPS = {
    "avx512_bf16": {"TORCH_MTL4_CPU_ISA": "avx512_bf16", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
    "avx512": {"TORCH_MTL4_CPU_ISA": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "avx2": {"TORCH_MTL4_CPU_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
}


def main() -> int:
    """Measures what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="regular expression over 'op name dtype'")
    parser.add_argument("--isa", choices=CAPS, help="cap the instruction set, for this package and torch alike")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=3, help="no round of a case starts later (but 5 are run)")
    parser.add_argument("--threads", type=int, help="torch's threads (default: torch's own choice)")
    parser.add_argument("--skip-tests", action="store_true", help="time without running the ops' tests first")
    parser.add_argument("--json", type=Path, help="where to write (default: benchmarks/results/PROCESSOR-ISA.json)")
    arguments = parser.parse_args()
    if arguments.isa and os.environ.get("TORCH_MTL4_CPU_ISA") != arguments.isa:  # read once, when a library is loaded
        return subprocess.run(
            [sys.executable, "-m", "benchmarks.run", *sys.argv[1:]],
            env={**os.environ, **CAPS[arguments.isa]}, check=False,
        ).returncode  # fmt: skip
    return measure(arguments)


def measure(arguments: argparse.Namespace) -> int:
    """Runs tests and cases, prints the table, writes the file."""
    import torch

    from benchmarks import memory, registry, render, timing
    from torch_mtl4 import machine

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    chosen = [c for c in registry.cases() if re.search(arguments.only, f"{c.op} {c.name} {c.dtype}")]
    if not arguments.skip_tests:
        for folder in sorted({case.tests for case in chosen}):
            subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-m", "not sweep", folder], check=True)
    result = {
        "schema": 1,
        "date": datetime.now(timezone.utc).date().isoformat(),
        **commit(),
        "machine": machine.describe(),
        "roofline": timing.roofline(),
        "cases": [],
    }
    for case in chosen:
        started = time.perf_counter()
        with torch.inference_mode():
            samples = timing.interleaved(case.make(), arguments.rounds, arguments.seconds)
        result["cases"].append(line := summarize(case, samples, result["roofline"]))
        print(f"{line['ratio']:6.2f}x  {case.op} {case.name} {case.dtype}  ({time.perf_counter() - started:.1f} s)")
    if re.search(arguments.only, "flash_attention memory"):
        result["memory"] = {"kind": memory.KIND, "lengths": memory.table()}
    isa = result["machine"]["isa"]["torch_mtl4"]
    name = re.sub(r"[^a-z0-9]+", "-", result["machine"]["processor"].lower().replace("(r)", "")).strip("-")
    path = arguments.json or HERE / "results" / f"{name}-{isa.replace('_', '-')}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\n{render.markdown(result)}\n\nwritten to {path}")
    return 0


def summarize(case, samples: dict[str, list[float]], roofline: dict[str, float]) -> dict:
    """One case as JSON: both medians, the speed-up, and the share of what the machine could do at best."""
    import statistics

    from benchmarks import timing

    ours, peer = (timing.spread(samples[name]) for name in ("ours", "peer"))
    at_best = max(case.flops / (roofline[f"{case.dtype}_gflop_s"] * 1e9), case.bytes / (roofline["read_gb_s"] * 1e9))
    return {
        "op": case.op,
        "name": case.name,
        "dtype": case.dtype,
        "peer": case.peer,
        "goal": case.goal,
        "ours_ms": ours,
        "peer_ms": peer,
        "ratio": statistics.median(b / a for a, b in zip(samples["ours"], samples["peer"], strict=True)),
        "of_roofline": at_best * 1e3 / ours["median_ms"],
    }


def commit() -> dict:
    """The commit that was measured, and whether files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()

    return {"commit": git("rev-parse", "--short=12", "HEAD"), "modified": bool(git("status", "--porcelain", "-uno"))}


if __name__ == "__main__":
    sys.exit(main())
