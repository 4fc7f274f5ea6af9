"""Compiled kernels of one source, and what was found while they ran."""

import ctypes
import difflib
from collections.abc import Sequence
from pathlib import Path

from . import native, toolchain
from .cost import Cost
from .dwarf import FrameTable
from .errors import MslError
from .frontend import FunctionConstant, KernelDeclaration
from .kernel import Kernel
from .report import Finding, Location, LogMessage, Report, ThreadPosition

_NAMES_LISTED = 20


class Library:
    """Kernels compiled from one source, with what was found while they ran.

    Attributes:
        report: the findings of all dispatches so far.
        log: the messages of os_log of all dispatches so far.
        kernels: name to declaration.
        cost: what the latest dispatch cost, see `cost.py`; MslError if the library does not count.
        constants: the function constants of the source, with whether they were given a value.
    """

    def __init__(
        self,
        path: Path,
        kernels: Sequence[KernelDeclaration],
        constants: Sequence[FunctionConstant],
        checked: bool,
        counted: bool,
        layout: str,
    ):
        self.path = path
        self.kernels = {kernel.name: kernel for kernel in kernels}
        self.constants = tuple(constants)
        self.checked = checked
        self.counted = counted
        self._cost: Cost | None = None
        self.layout = layout
        self.report = Report()
        self.log: list[LogMessage] = []
        native.runtime()
        self._library = ctypes.CDLL(str(path))
        self._library.msl_library.restype = native.LibraryInfo
        self._info = self._library.msl_library()
        self._frames: FrameTable | None = None
        self._entries = {}
        entry = self._info.kernels
        while entry:
            self._entries[entry.contents.name.decode()] = entry.contents.entry
            entry = entry.contents.next

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name; ValueError lists the names if there is none."""
        if name not in self._entries:
            names = sorted(self._entries)
            if len(names) > _NAMES_LISTED:
                names = [*difflib.get_close_matches(name, names, 5), f"{len(names)} kernels"]
            raise ValueError(f"kernel: expected one of {', '.join(names) or 'no kernels'}, got {name!r}")
        return Kernel(self, self.kernels[name], self._entries[name])

    @property
    def cost(self) -> Cost:
        """What the latest dispatch cost; MslError if nothing was counted."""
        if not self.counted:
            raise MslError("cost: expected a library compiled with count=True, got one that does not count")
        if self._cost is None:
            raise MslError("cost: expected a dispatch before, and one that did not crash")
        return self._cost

    def keep_cost(self, cost: Cost | None) -> None:
        """Makes this the cost of the latest dispatch."""
        self._cost = cost

    def _location(self, pc: int) -> Location | None:
        begin, end = self._info.image_begin, self._info.image_end
        if not begin <= pc < end:
            return None
        if self._frames is None:
            self._frames = FrameTable(self.path)
        frames = self._frames.find(pc - begin - 1)
        own = [(path, line) for path, line in frames if not path.startswith(toolchain.HEADERS_IN_DEBUG_INFO)]
        if not frames:
            return None
        (path, line), *callers = own or frames
        return Location(path, line, tuple(f"{Path(path).name}:{line}" for path, line in callers))

    def collect(self, kernel: str, reports: int) -> tuple[Report, list[LogMessage]]:
        """Takes over the findings and the log of a dispatch from the runtime."""
        runtime, view = native.runtime(), native.ReportView()
        report, log = Report(), []
        for i in range(runtime.msl_report_count(reports)):
            runtime.msl_report_get(reports, i, ctypes.byref(view))
            places = self._location(view.pc), self._location(view.other_pc)
            message = view.message.decode(errors="replace")
            report.findings.append(Finding(view.kind.decode(), kernel, message, *places, _thread(view), view.count))
        for i in range(runtime.msl_log_count(reports)):
            runtime.msl_log_get(reports, i, ctypes.byref(view))
            text = view.message.decode(errors="replace")
            log.append(LogMessage(view.kind.decode(), text, kernel, self._location(view.pc), _thread(view)))
        runtime.msl_reports_free(reports)
        return report, log


def _thread(view: native.ReportView) -> ThreadPosition | None:
    if not view.has_thread:
        return None
    return ThreadPosition(tuple(view.threadgroup), tuple(view.thread), view.simdgroup, view.lane)
