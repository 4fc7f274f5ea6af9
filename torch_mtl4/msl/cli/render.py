"""Outcomes on a terminal."""

from pathlib import Path

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ..cost import Cost
from ..report import Finding, Location
from .commands import Outcome

_VALUES = 3


def show(outcome: Outcome) -> None:
    """Prints an outcome."""
    console = Console(highlight=False, soft_wrap=True)
    for finding in outcome.findings:
        console.print(_finding(finding))
    for note in outcome.notes:
        console.print(Text.assemble(("note: ", "cyan"), note))
    if outcome.outputs:
        console.print(_outputs(outcome.outputs))
    if outcome.cost:
        console.print(_cost(outcome.cost, outcome.baseline, outcome.per))
    count = len(outcome.findings)
    verdict = (f"{count} finding{'s' * (count > 1)}", "bold red") if count else ("clean", "bold green")
    console.print(Text.assemble(f"{outcome.source}: {outcome.summary}: ", verdict))


def _finding(finding: Finding) -> Group:
    where = finding.location.place if finding.location else ""
    kernel = f" in {finding.kernel} " if finding.kernel else " "
    lines = [Text.assemble((finding.kind, "bold red"), kernel, (where, "bold"))]
    lines.append(Text(f"  {finding.message}"))
    lines += _excerpt(finding.location)
    if finding.location and finding.location.callers:
        lines.append(Text(f"  called from {', '.join(finding.location.callers)}"))
    if finding.other_location:
        lines.append(Text(f"  the other access is at {finding.other_location}"))
        lines += _excerpt(finding.other_location)
    if finding.thread:
        lines.append(Text(f"  first seen by {finding.thread}", "dim"))
    if finding.count > 1:
        lines.append(Text(f"  seen {finding.count} times", "dim"))
    return Group(*lines, Text())


def _excerpt(location: Location | None) -> list[Text]:
    if location is None or not Path(location.path).is_file():
        return []
    source = Path(location.path).read_text(errors="replace").splitlines()
    if not 1 <= location.line <= len(source):
        return []
    return [Text.assemble((f"  {location.line:5} | ", "dim"), source[location.line - 1].expandtabs(4))]


def _outputs(arrays: dict[str, np.ndarray]) -> Table:
    table = Table("buffer", "type", "shape", "min", "max", "first values")
    for name, array in arrays.items():
        values = array.astype(np.float64) if array.dtype.kind == "f" else array
        limits = [f"{f(values):.4g}" for f in (np.min, np.max)] if array.size else ["", ""]
        shape = " x ".join(map(str, array.shape))
        first = " ".join(f"{v:.4g}" for v in array.flat[:_VALUES].tolist())
        table.add_row(Text(name), array.dtype.name, shape, *limits, first)
    return table


def _cost(cost: Cost, baseline: Cost | None, per: int | None) -> Table:
    table = Table(f"{cost.threadgroups:,} threadgroups, {cost.threads:,} threads")
    for column in ["count", *(["per output"] if per else []), *(["baseline", "ratio"] if baseline else [])]:
        table.add_column(column, justify="right")
    for name, (count, before) in cost.compare(baseline or cost).items():
        cells = [f"{count:,}"]
        if per:
            cells.append(f"{count / per:,.4g}")
        if baseline:
            cells += [f"{before:,}", f"{count / before:.3f}" if before else ""]
        table.add_row(Text(name), *cells)
    return table
