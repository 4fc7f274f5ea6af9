"""Runs the setups of one model side by side, each in its own process, and gathers what they measured."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass

from torch_mtl4.demo.weights import DemoError, Model, packed

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """How much is run. Speeds are medians over rounds, in which the setups take turns."""

    score_tokens: int = 1024
    prompts: int = 4
    new_tokens: int = 32
    prefill_tokens: int = 512
    decode_tokens: int = 32
    decode_seconds: float = 4
    sentences: int = 1000
    rounds: int = 5
    seconds: float = 60  # no round starts later than this


FULL = Effort()
QUICK = Effort(
    score_tokens=256, prompts=2, new_tokens=12, prefill_tokens=256, decode_tokens=8, decode_seconds=1, sentences=32,
    rounds=3, seconds=6,
)  # fmt: skip


class Worker:
    """A process that loads one model in one setup, and then answers requests."""

    def __init__(self, job: dict):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torch_mtl4.demo.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip
        self._send(job)

    def _send(self, request) -> None:
        with suppress(BrokenPipeError):  # `answer` will tell
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def ask(self, request: str) -> dict:
        """Sends a request and waits for its answer."""
        self._send(request)
        return self.answer()

    def answer(self) -> dict:
        """Waits for an answer; the first one comes when the model is loaded."""
        answer = self._process.stdout.readline()
        if not answer:
            self.close()
            self._errors.seek(0)
            raise DemoError(f"a measuring process ended early; its last words:\n{self._errors.read()[-2000:]}")
        return json.loads(answer)

    def close(self) -> None:
        """Ends the process and frees its memory."""
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


def steps(model: Model, setups: list[str], effort: Effort) -> int:
    """How often `compare` will report progress."""
    return 1 + len(setups) * (effort.rounds + (4 if model.kind == "decoder" else 3))


def compare(model: Model, setups: list[str], dtype: str, effort: Effort, progress: Progress) -> dict:
    """Measures a model in every setup. The first of `setups` is what the others are compared with."""
    with packed(model) as packed_path:
        progress("packing")
        job = {"kind": model.kind, "path": model.path, "packed_path": packed_path, "dtype": dtype, **asdict(effort)}
        results = _results(job, model, setups, effort, progress)
    answers = {setup: results[setup].pop("answers") for setup in setups}
    for setup in setups[1:]:
        results[setup]["agreement"] = _agreement(answers[setups[0]], answers[setup])
    return {
        "name": model.name, "kind": model.kind, "licence": model.licence, "dtype": dtype, "effort": asdict(effort),
        "setups": results,
    }  # fmt: skip


def _results(job: dict, model: Model, setups: list[str], effort: Effort, progress: Progress) -> dict:
    results = {}
    first = _open(job, setups[:1], progress, results)
    if _fit_together(results[setups[0]]["weight_bytes"], len(setups)):
        _measure(first | _open(job, setups[1:], progress, results), model, effort, progress, results)
    else:  # too large to take turns: one after the other
        _measure(first, model, effort, progress, results)
        for setup in setups[1:]:
            _measure(_open(job, [setup], progress, results), model, effort, progress, results)
    return results


def _open(job: dict, setups: list[str], progress: Progress, results: dict) -> dict[str, Worker]:
    workers = {setup: Worker({**job, "setup": setup}) for setup in setups}
    for setup, worker in workers.items():
        results[setup] = worker.answer()
        progress(f"load ({setup})")
    return workers


def _fit_together(weight_bytes: int, count: int) -> bool:
    import psutil

    return weight_bytes * 1.5 * count < psutil.virtual_memory().available


def _measure(workers: dict[str, Worker], model: Model, effort: Effort, progress: Progress, results: dict) -> None:
    for setup, worker in workers.items():
        result = results[setup]
        result["answers"] = worker.ask("answers")
        progress(f"answers ({setup})")
        if model.kind == "decoder":
            score = worker.ask("score")
            result["perplexity"] = score["perplexity"]
            result["answers"]["best"] = score["best"]
            progress(f"perplexity ({setup})")
    rounds = {setup: [] for setup in workers}
    started = time.perf_counter()
    for _ in range(effort.rounds):
        for setup, worker in workers.items():
            if time.perf_counter() - started < effort.seconds or len(rounds[setup]) < 1:
                rounds[setup].append(worker.ask("speed"))
            progress(f"speed ({setup})")
    for setup, worker in workers.items():
        for name in rounds[setup][0]:
            speeds = [speed[name] for speed in rounds[setup]]
            results[setup][name] = {"median": statistics.median(speeds), "min": min(speeds), "max": max(speeds)}
        results[setup]["run_peak"] = worker.ask("memory")["peak"]
        results[setup]["kernels"] = worker.ask("kernels")
        worker.close()
        progress(f"memory ({setup})")


def _agreement(baseline: dict, patched: dict) -> dict:
    if "embeddings" in baseline:
        return _embedding_agreement(baseline["embeddings"], patched["embeddings"])
    prefixes = [_common_prefix(a, b) for a, b in zip(baseline["tokens"], patched["tokens"], strict=True)]
    same = [a == b for a, b in zip(baseline["best"], patched["best"], strict=True)]
    return {
        "top_token": sum(same) / len(same), "positions": len(same),
        "greedy_prefix": prefixes, "greedy_length": len(baseline["tokens"][0]),
    }  # fmt: skip


def _common_prefix(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def _embedding_agreement(baseline: list[list[float]], patched: list[list[float]]) -> dict:
    import numpy

    a, b = numpy.array(baseline), numpy.array(patched)
    cosine = (a * b).sum(1)
    nearest = [(rows @ rows.T - 2 * numpy.eye(len(rows))).argmax(1) for rows in (a, b)]
    return {
        "cosine_min": cosine.min().item(), "cosine_mean": cosine.mean().item(), "texts": len(a),
        "same_neighbour": (nearest[0] == nearest[1]).mean().item(),
    }  # fmt: skip
