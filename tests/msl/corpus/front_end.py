"""All kernels of a corpus through preprocessing, rewriting and type-checking, every template instantiated."""

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from torch_mtl4.msl import MslError, cache, toolchain
from torch_mtl4.msl.compile import preprocessed
from torch_mtl4.msl.frontend import translate
from torch_mtl4.msl.tiers import DEFAULT_TIER, find_tier


@dataclass(frozen=True)
class SourceFile:
    """A .metal file or its text, and how it is compiled."""

    corpus: str
    name: str
    source: str | Path
    include: tuple[Path, ...]
    defines: dict = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Verdict:
    corpus: str
    name: str
    kernels: int
    errors: list[str]
    seconds: float


def check_file(file: SourceFile) -> Verdict:
    start = time.monotonic()
    tier = find_tier(DEFAULT_TIER)
    try:
        text, _ = preprocessed(file.source, f"{file.name}.metal", file.include, file.defines, DEFAULT_TIER)
        cpp, rewriter = translate(text, {}, None, None)
        flags = [*toolchain.kernel_flags(checked=False), *tier.header_flags()]
        accepted, diagnostics = _cached(cpp, flags)
    except MslError as error:
        return Verdict(file.corpus, file.name, 0, str(error).splitlines()[:20], time.monotonic() - start)
    errors = re.findall(r"^.*?error: .*$", diagnostics, re.M)
    if not accepted and not errors:
        errors = diagnostics.splitlines()[-3:] or ["rejected without a diagnostic"]
    return Verdict(file.corpus, file.name, len(rewriter.kernels), [] if accepted else errors, time.monotonic() - start)


def _cached(cpp: str, flags: list[str]) -> tuple[bool, str]:
    """What the compiler said to this text; kept on disk as long as neither the text nor the headers change."""
    key = cache.digest(cpp, toolchain.own_sources_digest(), *flags)

    def write(output: Path) -> None:
        accepted, diagnostics = toolchain.check_syntax(cpp, "msl.h", flags)
        output.write_text(("accepted\n" if accepted else "rejected\n") + diagnostics)

    verdict, _, diagnostics = cache.publish(f"corpus-{key}.txt", write).read_text().partition("\n")
    return verdict == "accepted", diagnostics


def check_files(files: list[SourceFile], jobs: int, done: Callable[[Verdict], None]) -> None:
    """Calls done(verdict) for each file, in their order."""
    pool = ThreadPoolExecutor(jobs)
    try:
        for verdict in pool.map(check_file, files):
            done(verdict)
    finally:
        pool.shutdown(cancel_futures=True)
