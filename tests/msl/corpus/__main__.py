"""Runs the corpora: downloads them, type-checks all of their kernels, executes some against numpy.

Exit code 0 if every kernel compiles and every executed one behaves as it is known to, 1 if not.
"""

import argparse
import datetime
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from torch_mtl4.msl.compilers import find_compiler

from . import cases_llama, cases_mlx, cases_torch
from .cases import Outcome, run
from .front_end import Verdict, check_files
from .sources import CORPORA

CASES = {"mlx": cases_mlx, "torch": cases_torch, "llama": cases_llama}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.msl.corpus", description=__doc__)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this one; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time (%(default)s)")
    parser.add_argument("--limit", type=int, help="kernels of each MLX file, files and cases of each corpus")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="downloads and sources (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--no-front-end", action="store_true", help="execute only")
    parser.add_argument("--no-cases", action="store_true", help="compile only")
    return parser.parse_args()


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch_mtl4" / "msl_corpus"


def progress(console: Console) -> Progress:
    columns = TextColumn("{task.description:48.48}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=console)


@dataclass
class Results:
    """What is known so far: a run that is interrupted still tells and writes it."""

    verdicts: list[Verdict] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    complete: bool = False

    @property
    def good(self) -> bool:
        failed = any(v.errors for v in self.verdicts) or any(o.problem for o in self.outcomes)
        return self.complete and not failed


def compile_all(console: Console, args: argparse.Namespace, names: list[str], results: Results) -> None:
    files = [file for name in names for file in CORPORA[name][1](args.cache, args.limit)]
    with progress(console) as bar:
        task = bar.add_task("front end", total=len(files))

        def done(verdict: Verdict) -> None:
            results.verdicts.append(verdict)
            bar.update(task, advance=1, description=f"front end: {verdict.corpus} {verdict.name}")
            for error in verdict.errors[:5]:
                bar.console.print(f"[red]{verdict.corpus} {verdict.name}[/]: {error}", highlight=False)

        check_files(files, args.jobs, done)


def execute_all(console: Console, args: argparse.Namespace, names: list[str], results: Results) -> None:
    cases = [case for name in names for case in CASES[name].cases(args.cache)[: args.limit]]
    with progress(console) as bar:
        task = bar.add_task("execution", total=len(cases))
        for case in cases:
            bar.update(task, description=f"execution: {case.corpus} {case.name}")
            results.outcomes.append(outcome := run(case))
            bar.advance(task)
            if outcome.problem:
                bar.console.print(f"[red]{case.corpus} {case.name}[/]: {outcome.problem}", highlight=False)


def tables(results: Results) -> list[Table]:
    verdicts, outcomes = results.verdicts, results.outcomes
    front = Table("corpus", "files", "kernels", "compile", title="Front end: every template instantiated")
    for corpus in dict.fromkeys(v.corpus for v in verdicts):
        of = [v for v in verdicts if v.corpus == corpus]
        good = [v for v in of if not v.errors]
        kernels = sum(v.kernels for v in of)
        front.add_row(corpus, f"{len(of)}", f"{kernels:,}", f"{len(good)} / {sum(v.kernels for v in good):,}")
    executed = Table(
        "corpus", "kernels executed", "clean", "known findings or layout", "wrong", title="Against numpy, checked"
    )
    for corpus in dict.fromkeys(o.corpus for o in outcomes):
        of = [o for o in outcomes if o.corpus == corpus]
        good = [o for o in of if not o.problem]
        executed.add_row(
            corpus,
            f"{len(of)} ({len({o.kernel for o in of})} different)",
            f"{sum(not o.known for o in good)}",
            f"{sum(o.known for o in good)}",
            f"{len(of) - len(good)}",
        )
    return [t for t in (front, executed) if t.row_count]


def record(args: argparse.Namespace, names: list[str], results: Results) -> dict:
    outcomes = results.outcomes
    return {
        "date": datetime.date.today().isoformat(),
        "compiler": find_compiler().version,
        "packages": {CORPORA[n][0].name: CORPORA[n][0].version for n in names},
        "limit": args.limit,
        "complete": results.complete,
        "front_end": [
            {"corpus": v.corpus, "file": v.name, "kernels": v.kernels, "errors": len(v.errors)}
            for v in results.verdicts
        ],
        "executed": [{k: v for k, v in asdict(o).items() if k not in ("seconds", "first_finding")} for o in outcomes],
        "findings": [
            {"corpus": o.corpus, "kernel": o.kernel, "finding": o.first_finding.splitlines()}
            for o in outcomes
            if o.kinds
        ],
    }


def main() -> int:
    args, console, results = arguments(), Console(), Results()
    names = args.corpus or list(CORPORA)
    for name in names:
        package = CORPORA[name][0]
        console.print(f"{package.name} {package.version}: {package.fetch(args.cache)}", highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if not args.no_front_end:
            compile_all(console, args, names, results)
        if not args.no_cases:
            execute_all(console, args, names, results)
        results.complete = True
    finally:
        for table in tables(results):
            console.print(table)
        if args.json:
            args.json.write_text(json.dumps(record(args, names, results), indent=1) + "\n")
            console.print(f"written: {args.json}")
    return 0 if results.good else 1


if __name__ == "__main__":
    sys.exit(main())
