"""A kernel under watch: its text against its reference, races, bounds, coverage of its results, and what it costs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from torch_mtl4 import testing
from torch_mtl4.custom import runner
from torch_mtl4.custom.execution import execute
from torch_mtl4.custom.launch import as_results
from torch_mtl4.custom.source import HANDLE
from torch_mtl4.ops._errors import expected

if TYPE_CHECKING:
    from torch_mtl4 import msl
    from torch_mtl4.custom.kernel import MetalKernel

LAYOUTS = ("m5", "pre_m5", "scrambled")


@dataclass
class CheckReport:
    """What checking a kernel found; true if it is clean.

    Attributes:
        kernel: its name.
        source: its body.
        findings: what Apple's compiler would refuse, and of the watched runs, each kind and place once: races, accesses
            out of bounds, elements of results that were never written, ...
        mismatches: where the kernel and its reference differ, a sentence each.
        runs: how many watched runs there were.
        compared_with: what was taken for the truth: the reference in float64, or the reference itself.
        not_watched: why there were none, where the inputs are on MPS and this machine has no MSL runner.
    """

    kernel: str
    source: str
    findings: list["msl.Finding"] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)
    runs: int = 0
    compared_with: str = ""
    not_watched: str = ""

    def __bool__(self) -> bool:
        return not self.findings and not self.mismatches

    def __str__(self) -> str:
        runs = f"not watched ({self.not_watched})" if self.not_watched else f"{self.runs} watched runs"
        head = f"{self.kernel}: {runs}, compared with {self.compared_with}: "
        if self:
            return head + "clean"
        found = [f"{finding}{self._line(finding)}" for finding in self.findings]
        return "\n".join([head + f"{len(found)} findings, {len(self.mismatches)} mismatches", *found, *self.mismatches])

    def _line(self, finding: "msl.Finding") -> str:
        """The line of the body at which something was found."""
        if finding.location is None or finding.location.path != self.kernel:
            return ""
        lines = self.source.split("\n")
        number = finding.location.line
        return f"\n{number:5} | {lines[number - 1]}" if 1 <= number <= len(lines) else ""


def check(
    kernel: "MetalKernel",
    *args,
    layouts: Sequence[str] = LAYOUTS,
    orders: int = 2,
    allowed: float | None = None,
    **keywords,
) -> CheckReport:
    """Runs a kernel's text on the CPU with every access watched, and compares what it gives with its reference.

    What the kernel gives on MPS is compared, too, if the inputs are there. Results must be as close to the reference on
    float64 inputs as twice the error of the reference itself and a floor (the policy of torch_mtl4/testing.py); whole
    numbers must be equal.

    Args:
        args, keywords: the inputs; of those that are in place copies are used.
        layouts: of cooperative tensors, all of which a kernel that has some must bear.
        orders: runs in a random order of threads, beside those in the plain one.
        allowed: the largest error, in place of the policy.

    Returns:
        What was found.

    Raises:
        CompileError: the text does not compile.
        KernelFaultError: the kernel crashed.
        TypeError, ValueError, NotImplementedError: as calling the kernel does; this machine has no MSL runner, and the
            inputs are not on MPS.
    """
    values = kernel.signature.bind(args, keywords)
    kernel.signature.check(values)
    device = next(v.device for v in values if isinstance(v, Tensor))
    truth = _Truth(kernel, _copies(kernel, values))
    report = CheckReport(kernel.name, kernel.definition.source, compared_with=truth.name)

    def compare(results, given, where=""):
        named = zip(truth.names, [*results, *_in_place(kernel, given)], strict=True)
        found = (truth.mismatch(name, where, result.cpu(), allowed) for name, result in named)
        report.mismatches += [m for m in found if m is not None and m not in report.mismatches]

    if device.type == "mps":
        given = _copies(kernel, values, device=device)
        compare(_results(kernel(*given)), given, " on mps")
    try:
        for given, results in _watched(kernel, values, layouts, orders, report):
            compare(results, given)
    except NotImplementedError as error:
        if device.type != "mps":
            raise
        report.not_watched = str(error)
    return report


def _watched(
    kernel: "MetalKernel", values: Sequence, layouts: Sequence[str], orders: int, report: CheckReport
) -> Iterator[tuple[list, tuple[Tensor, ...]]]:
    """(inputs, results) of each watched run; what is found goes to the report, each kind and place once."""
    text = kernel.specialize(values, kernel.launcher.results(values)).text(HANDLE)
    report.findings += runner.verdict(text, kernel.name).findings
    uses_layouts = any("cooperative" in text for text in (kernel.definition.source, kernel.definition.helpers))
    runs: list[dict[str, Any]] = [{"layout": layout} for layout in (layouts if uses_layouts else layouts[:1])]
    runs += [{"layout": layouts[0], "shuffle": True, "seed": seed} for seed in range(1, orders + 1)]
    seen: set[tuple] = set()
    for options in runs:
        given = _copies(kernel, values)

        def watched(specialization, tensors, launch, options=options):
            library = runner.library(specialization, checked=True)
            for name in kernel.signature.outputs:
                runner.undefined(tensors[name])
            result = runner.dispatch(library, specialization, tensors, launch, HANDLE, **options)
            for finding in result.report:
                key = (finding.kind, finding.location or finding.message, finding.other_location)
                if key not in seen:
                    seen.add(key)
                    report.findings.append(finding)

        results = execute(kernel, given, watched)
        report.runs += 1
        yield given, results


def cost(kernel: "MetalKernel", *args, **keywords) -> "msl.Cost":
    """What a kernel does for these inputs, on the CPU."""
    values = kernel.signature.bind(args, keywords)
    counted = []

    def count(specialization, tensors, launch):
        library = runner.library(specialization, checked=False, count=True)
        counted.append(runner.dispatch(library, specialization, tensors, launch).cost)

    kernel.signature.check(values)
    execute(kernel, _copies(kernel, values), count)
    if counted:
        return counted[0]
    from torch_mtl4 import msl

    return msl.Cost(kernel.name, 0, 0)


class _Truth:
    """What the results should be: of the reference on inputs as they are, and in float64."""

    def __init__(self, kernel: "MetalKernel", values: Sequence):
        self.names = [*kernel.signature.outputs, *kernel.signature.in_place]
        self._op = kernel.name
        self._plain = _reference(kernel, _copies(kernel, values))
        self._promised = [
            *((tuple(r.shape), r.dtype) for r in kernel.launcher.results(values)),
            *((tuple(t.shape), t.dtype) for t in _in_place(kernel, values)),
        ]
        try:
            self._upcast = _reference(kernel, _copies(kernel, values, torch.float64))
            self.name = "the reference in float64"
        except Exception as error:  # whatever the reference says to a dtype that it was not made for
            self._upcast = self._plain
            self.name = f"the reference itself, which does not take float64 ({type(error).__name__})"

    def mismatch(self, name: str, where: str, result: Tensor, allowed: float | None) -> str | None:
        """A sentence on the first element of a result that is wrong."""
        at = self.names.index(name)
        plain, upcast, (shape, dtype) = self._plain[at], self._upcast[at], self._promised[at]
        if (tuple(plain.shape), plain.dtype) != (shape, dtype):
            got = f"{list(plain.shape)} of {plain.dtype}"
            return f"{self._op}: expected the reference's {name} as promised, {list(shape)} of {dtype}, got {got}"
        try:
            if not dtype.is_floating_point:
                testing.assert_equal(result, plain, name + where)
            else:
                if allowed is None:
                    allowed = testing.allowed_error(testing.error_of(plain, upcast), upcast, dtype)
                testing.assert_close(result, upcast, allowed, name + where)
        except AssertionError as error:
            return f"{self._op}: {error}"
        return None


def _reference(kernel: "MetalKernel", values: Sequence) -> list[Tensor]:
    with torch.no_grad():
        results = as_results(kernel.signature, kernel.reference(*values), operands=False)
    return [*results, *_in_place(kernel, values)]


def _in_place(kernel: "MetalKernel", values: Sequence) -> list[Tensor]:
    named = dict(zip((i.name for i in kernel.signature.inputs), values, strict=True))
    return [named[name] for name in kernel.signature.in_place]


def _results(given) -> tuple[Tensor, ...]:
    return (given,) if isinstance(given, Tensor) else given or ()


def _copies(
    kernel: "MetalKernel",
    values: Sequence,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> list:
    """The values on a device, with tensors of the caller's left alone: copies of those that are written to."""
    copies = []
    for i, value in zip(kernel.signature.inputs, values, strict=True):
        if isinstance(value, Tensor):
            if value.device.type == "meta" or isinstance(value, FakeTensor):
                expected(ValueError, kernel.name, f"{i.name} with values, to be checked", "a tensor without memory")
            value = value.detach().to(device)
            if dtype is not None and value.is_floating_point():
                value = value.to(dtype)
            elif i.name in kernel.signature.in_place:
                value = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device).copy_(value)
        copies.append(value)
    return copies
