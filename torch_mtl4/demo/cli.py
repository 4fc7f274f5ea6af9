"""`python -m torch_mtl4 demo`: chooses models and setups, shows progress, prints the tables, writes the JSON."""

import argparse
import json
import sys
import time
from pathlib import Path

from torch_mtl4.demo import weights


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--model", metavar="PATH_OR_ID", help="a decoder or encoder of text to measure instead")
    parser.add_argument("--encoder", metavar="PATH_OR_ID", help="an encoder to measure instead of the packaged one")
    parser.add_argument("--prepare", action="store_true", help="convert the weights, which later runs reuse, and stop")
    parser.add_argument("--quick", action="store_true", help="less text and fewer repetitions: under a minute")
    parser.add_argument(
        "--dtype", choices=["auto", "bfloat16", "float32"], default="auto",
        help="dtype of baseline and patched model (auto: the one that multiplies faster on this machine)",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write everything measured to FILE (- for standard output)")


def run(arguments: argparse.Namespace) -> int:
    """Runs the demo; returns 0, or 2 when the user has something to put right first."""
    try:
        weights.require(*weights.ALWAYS)
        if arguments.prepare:
            return _prepare(arguments)
        result = _measure(arguments)
    except weights.DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    if arguments.json and arguments.json != "-":
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")
    elif arguments.json:
        print(json.dumps(result, indent=1))
    return 0


def _models(arguments: argparse.Namespace):
    """Yields what to measure. A generator, since the first packaged decoder takes a while to make."""
    if arguments.model:
        yield weights.users_model(arguments.model)
    else:
        yield weights.packaged_decoder()
    if arguments.encoder:
        yield weights.users_model(arguments.encoder)
    elif not arguments.model:
        yield weights.packaged_encoder()


def _prepare(arguments: argparse.Namespace) -> int:
    for model in _models(arguments):
        with weights.packed(model):
            print(f"{model.name}: ready")
    return 0


def _measure(arguments: argparse.Namespace) -> dict:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from torch_mtl4 import machine
    from torch_mtl4.demo import compare
    from torch_mtl4.demo.table import cells, table

    started = time.perf_counter()
    effort = compare.QUICK if arguments.quick else compare.FULL
    setups = ["stock", "mxfp8"] if arguments.quick else ["stock", "attention", "mxfp8"]
    facts = {"machine": machine.describe(), "faster": machine.faster_dtype()}
    dtype = facts["faster"]["dtype"] if arguments.dtype == "auto" else arguments.dtype
    console = Console(stderr=arguments.json == "-")
    console.print(machine.summary(facts["machine"]), highlight=False, soft_wrap=True)
    results = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("finding the weights (converted once, then cached)", total=None)
        for model in _models(arguments):
            progress.update(task, description=model.name, completed=0, total=compare.steps(model, setups, effort))

            def advance(step: str, name=model.name) -> None:
                progress.update(task, advance=1, description=f"{name}: {step}")

            measured = compare.compare(model, setups, dtype, effort, advance)
            results.append({**measured, "table": cells(measured)})
            console.print(table(results[-1]))
    seconds = time.perf_counter() - started
    console.print(
        f"Baseline: stock scaled_dot_product_attention and F.linear in {dtype}"
        f"{', the faster dtype on this machine' * (arguments.dtype == 'auto')}. Took {seconds:.0f} s.",
        soft_wrap=True,
    )
    return {"schema": 1, **facts, "quick": arguments.quick, "seconds": seconds, "models": results}
