"""What the commands do; each returns an outcome that is then shown or printed as JSON."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from ..check import check as check_source
from ..compile import compile
from ..cost import Cost
from ..errors import KernelFaultError
from ..kernel import LAYOUTS, Kernel
from ..library import Library
from ..report import Finding
from . import arguments


@dataclass
class Outcome:
    """What a command found. A cost may come with the baseline that it is compared with, and a number of outputs."""

    source: Path
    summary: str
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    cost: Cost | None = None
    baseline: Cost | None = None
    per: int | None = None

    def as_dict(self) -> dict:
        def plain(array):
            values = array.astype(np.float64) if array.dtype.kind == "f" else array
            limits = {"min": values.min().item(), "max": values.max().item()} if array.size else {}
            return {"dtype": array.dtype.name, "shape": list(array.shape), **limits}

        result = {"source": str(self.source), "clean": not self.findings}
        result["findings"] = [asdict(finding) for finding in self.findings]
        result["notes"] = self.notes
        if self.outputs:
            result["outputs"] = {name: plain(array) for name, array in self.outputs.items()}
        if self.cost:
            result["cost"] = self.cost.to_dict()
            if self.per:
                result["per_output"] = self.cost.per(self.per)
            if self.baseline:
                result["baseline"] = self.baseline.to_dict()
        return result


def check(options) -> Outcome:
    """Compiles, and looks for what Apple's compiler refuses."""
    result = check_source(
        Path(options.source), constants=arguments.constants(options.constant), only=options.only, **_source(options)
    )
    count = len(result.kernels)
    summary = f"{count} kernel{'s' * (count != 1)}"
    return Outcome(Path(options.source), summary, result.findings, result.notes)


def run(options) -> Outcome:
    """Runs a kernel in the plain and in random orders; the findings of all runs are merged."""
    library = _compile(options, checked=not options.fast)
    kernel = _kernel(library, options.kernel)
    given = arguments.kernel_arguments(kernel.declaration, options.buffer, options.value)
    layouts = LAYOUTS if options.layout == "all" else [options.layout]
    orders = [None] if options.fast else [None, *range(1, options.orders + 1)]
    outputs = {}
    for layout in layouts:
        for seed in orders:
            copy = given.fresh()
            _dispatch(kernel, options, copy, layout=layout, shuffle=seed is not None, seed=seed or 1)
            outputs = outputs or copy.arrays
    for key, path in arguments.pairs(options.save, "--save"):
        if key not in outputs:
            raise ValueError(f"--save: expected one of {', '.join(outputs)}, got {key!r}")
        np.save(path, outputs[key])
    runs = len(layouts) * len(orders)
    summary, findings = f"{kernel.name}, {runs} run{'s' * (runs > 1)}", _merged(library.report.findings)
    return Outcome(Path(options.source), summary, findings, outputs=_written(kernel, outputs))


def cost(options) -> Outcome:
    """Counts what one dispatch does."""
    baseline = _baseline(Path(options.baseline)) if options.baseline else None
    if options.per is not None and options.per < 1:
        raise ValueError(f"--per: expected at least one output, got {options.per}")
    library = _compile(options, checked=True, count=True)
    kernel = _kernel(library, options.kernel)
    given = arguments.kernel_arguments(kernel.declaration, options.buffer, options.value)
    layout = "m5" if options.layout == "all" else options.layout
    result = _dispatch(kernel, options, given, layout=layout)
    counted = {"cost": result.cost, "baseline": baseline, "per": options.per} if result else {}
    return Outcome(Path(options.source), kernel.name, _merged(library.report.findings), **counted)


def _baseline(path: Path) -> Cost:
    """The cost in what `cost --json` has printed."""
    try:
        return Cost.from_dict(json.loads(path.read_text())["cost"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"--baseline: expected the output of `cost --json` in {path}, got {error!r}") from None


def _source(options) -> dict:
    defines = dict(d.split("=", 1) if "=" in d else (d, 1) for d in options.define)
    return {"include": options.include, "defines": defines, "tier": options.tier}


def _compile(options, **build) -> Library:
    constants = arguments.constants(options.constant)
    return compile(Path(options.source), constants=constants, only=options.only, **build, **_source(options))


def _kernel(library: Library, name: str | None) -> Kernel:
    if name is None:
        names = list(library.kernels)
        if len(names) != 1:
            listed = ", ".join(names[:20]) or "no kernel"
            raise ValueError(f"--kernel: expected a name, since the source has {listed}")
        name = names[0]
    return library.kernel(name)


def _dispatch(kernel: Kernel, options, given, **more):
    grid = {}
    for what in ("groups", "threads"):
        if text := getattr(options, what):
            grid[what] = arguments.sizes(text, f"--{what}")
    memory = arguments.pairs(options.threadgroup_memory, "--threadgroup-memory")
    try:
        return kernel.dispatch(
            threadgroup=arguments.sizes(options.threadgroup, "--threadgroup"),
            buffers=given.buffers,
            threadgroup_memory={int(index): int(nbytes) for index, nbytes in memory},
            **grid,
            **more,
        )
    except KernelFaultError:
        return None  # its findings are in the library's report


def _merged(findings: list[Finding]) -> list[Finding]:
    """Each kind at each place once: what several orders of threads find is mostly the same."""
    first = {}
    for finding in findings:
        first.setdefault((finding.kind, finding.location, finding.other_location), finding)
    return list(first.values())


def _written(kernel: Kernel, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    constant = {p.name for p in kernel.declaration.parameters if p.constant}
    return {name: array for name, array in arrays.items() if name not in constant}
