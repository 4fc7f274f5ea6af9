"""Export to Core AI beside the stock route: time, peak memory, size. `python -m benchmarks.coreai [--quick]`.

Both export the same fp16 language model of random weights, each run in a process of its own, in turns. "stock" is
torch.export and coreai-torch as their documentation has it, in the mode without source paths; "ours" is
torch_mtl4.export.coreai.export with attention and MXFP8 kernels. Verification is timed apart.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from datetime import date
from importlib.metadata import version
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "coreai.json"
MODEL = {"hidden": 768, "layers": 12, "tokens": 128}
QUICK = {"hidden": 256, "layers": 2, "tokens": 32}
RUNS = 3
GOALS = {"seconds": 1.2, "peak_mb": 1.2, "asset_mb": 0.6}


def model_of(hidden: int, layers: int):
    """A Llama of random half-precision weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
        num_key_value_heads=max(1, hidden // 256), vocab_size=8192, max_position_embeddings=2048, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config).half().eval()


def stock(model, ids, path: Path) -> dict:
    """The route of coreai-torch's documentation."""
    import coreai_torch
    import torch

    start = time.perf_counter()
    with torch.no_grad():
        program = torch.export.export(model, (), {"input_ids": ids}, strict=False)
        program = program.run_decompositions(coreai_torch.get_decomp_table())
    converter = coreai_torch.TorchConverter(mode=coreai_torch.TorchConverter.Mode.RELEASE)
    converter.add_exported_program(program)
    converter.to_coreai().save_asset(path)
    return {"seconds": time.perf_counter() - start}


def ours(model, ids, path: Path) -> dict:
    """Our route; what is not replaced is in the report."""
    from torch_mtl4.export.coreai import export

    start = time.perf_counter()
    report = export(model, {"input_ids": ids}, path, weights="mxfp8", verify=False)
    return {"seconds": time.perf_counter() - start, "steps": report.seconds, "kernel_calls": report.kernel_calls,
            "texts": len(report.kernels)}  # fmt: skip


def child(route: str, hidden: int, layers: int, tokens: int) -> dict:
    """One run, in this process. Imports and a tiny export come before the clock starts."""
    import torch

    warnings.simplefilter("ignore")
    run = {"stock": stock, "ours": ours}[route]
    with tempfile.TemporaryDirectory() as folder:
        run(model_of(64, 1), torch.zeros(1, 8, dtype=torch.long), Path(folder) / "warm.aimodel")
        model = model_of(hidden, layers)
        path = Path(folder) / "model.aimodel"
        cpu = time.process_time()
        result = run(model, torch.zeros(1, tokens, dtype=torch.long), path)
        result["cpu_seconds"] = time.process_time() - cpu
        result["asset_mb"] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6
        result["parameters"] = sum(p.numel() for p in model.parameters())
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result


def measure(size: dict, runs: int) -> dict:
    """Medians of both routes, and what ours is of the stock one."""
    found = {"stock": [], "ours": []}
    for _ in range(runs):
        for route, results in found.items():
            command = [sys.executable, "-m", "benchmarks.coreai", "--child", route, json.dumps(size)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
            results.append(json.loads(done.stdout.splitlines()[-1]))
    keys = ("seconds", "cpu_seconds", "peak_mb", "asset_mb")
    medians = {r: {key: statistics.median(run[key] for run in found[r]) for key in keys} for r in found}
    ratios = {key: medians["ours"][key] / medians["stock"][key] for key in keys}
    return {"medians": medians, "ratios": ratios, "goals": GOALS, "runs": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small model, once; writes nothing")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child[0], **json.loads(options.child[1]))))
        return
    size = QUICK if options.quick else MODEL
    load = os.getloadavg()[0]
    result = measure(size, 1 if options.quick else options.runs)
    if options.quick:
        print(json.dumps(result, indent=2))
        return
    from benchmarks.run import commit
    from torch_mtl4 import machine

    facts = {
        "kind": "coreai",
        **commit(),
        "date": date.today().isoformat(),
        "machine": machine.describe(),
        "load": load,
    }
    packages = {name: version(name) for name in ("coreai-core", "coreai-torch")}
    RESULT.write_text(json.dumps(facts | {"packages": packages, "model": size} | result, indent=2) + "\n")


if __name__ == "__main__":
    main()
