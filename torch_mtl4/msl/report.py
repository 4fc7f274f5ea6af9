"""Findings of dispatches: what went wrong, in which kernel, at which line, between which threads."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Location:
    """A line of the .metal file, and the lines of the calls around it that were inlined, innermost first."""

    path: str
    line: int
    callers: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The line as in "kernel.metal:12"."""
        return f"{Path(self.path).name}:{self.line}"

    def __str__(self) -> str:
        return ", called from ".join((self.place, *self.callers))


@dataclass(frozen=True)
class ThreadPosition:
    """A GPU thread: its threadgroup in the grid, its place in the threadgroup, its simdgroup and lane."""

    threadgroup: tuple[int, int, int]
    thread: tuple[int, int, int]
    simdgroup: int
    lane: int

    def __str__(self) -> str:
        group, thread = (",".join(map(str, p)) for p in (self.threadgroup, self.thread))
        return f"threadgroup ({group}) thread ({thread}) simdgroup {self.simdgroup} lane {self.lane}"


@dataclass(frozen=True)
class Finding:
    """One kind of misbehaviour at one place; `count` says how often it was seen."""

    kind: str
    kernel: str
    message: str
    location: Location | None
    other_location: Location | None
    thread: ThreadPosition | None
    count: int

    def __str__(self) -> str:
        lines = [
            f"{self.kind}: {self.message}",
            f"  kernel {self.kernel}" + (f" at {self.location}" if self.location else ""),
        ]
        if self.other_location:
            lines.append(f"  other access at {self.other_location}")
        if self.thread:
            lines.append(f"  first seen by {self.thread}")
        if self.count > 1:
            lines.append(f"  seen {self.count} times")
        return "\n".join(lines)


@dataclass(frozen=True)
class LogMessage:
    """What a kernel said by os_log: level "default", "debug", "info", "error" or "fault"."""

    level: str
    text: str
    kernel: str
    location: Location | None
    thread: ThreadPosition | None

    def __str__(self) -> str:
        return f"{self.level}: {self.text} ({self.location}, {self.thread})"


@dataclass
class Report:
    """The findings of one or several dispatches; true if there are any."""

    findings: list[Finding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "no findings"

    @property
    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.findings}

    def clear(self) -> None:
        self.findings.clear()

    def as_dicts(self) -> list[dict]:
        """The findings as plain data, for JSON."""
        return [asdict(finding) for finding in self.findings]
