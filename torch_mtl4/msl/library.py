"""Compiled kernels: look one up by name, dispatch it, read what was found."""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import native, toolchain
from .buffers import BoundBuffers
from .dwarf import FrameTable
from .errors import KernelFaultError
from .frontend import BUFFER, FunctionConstant, KernelDeclaration
from .report import Finding, Location, Report, ThreadPosition

LAYOUTS = {"m5": 0, "pre_m5": 1, "scrambled": 2}
THREADGROUP_MEMORY_LIMIT = 32 * 1024


@dataclass(frozen=True)
class DispatchResult:
    """One dispatch: its findings and its statistics. Times are of this machine's CPU and say nothing of a GPU."""

    report: Report
    seconds: float
    cpu_seconds: float
    switches: int
    simdgroup_operations: int
    barriers: int
    threadgroup_bytes: int
    workers: int


class Library:
    """Kernels compiled from one source, with what was found while they ran.

    Attributes:
        report: the findings of all dispatches so far.
        kernels: name to declaration.
        constants: the function constants of the source, with whether they were given a value.
    """

    def __init__(
        self,
        path: Path,
        kernels: Sequence[KernelDeclaration],
        constants: Sequence[FunctionConstant],
        checked: bool,
        layout: str,
    ):
        self.path = path
        self.kernels = {kernel.name: kernel for kernel in kernels}
        self.constants = tuple(constants)
        self.checked = checked
        self.layout = layout
        self.report = Report()
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

    def kernel(self, name: str) -> "Kernel":
        """The kernel of that name; KeyError lists the names if there is none."""
        if name not in self._entries:
            raise KeyError(f"kernel: expected one of {', '.join(sorted(self._entries))}, got {name!r}")
        return Kernel(self, self.kernels[name], self._entries[name])

    def _location(self, pc: int) -> Location | None:
        begin, end = self._info.image_begin, self._info.image_end
        if not begin <= pc < end:
            return None
        if self._frames is None:
            self._frames = FrameTable(self.path)
        frames = self._frames.find(pc - begin - 1)
        own = [(path, line) for path, line in frames if not path.startswith(toolchain.HEADERS_IN_DEBUG_INFO)]
        names = [f"{Path(path).name}:{line}" for path, line in own or frames]
        return Location(names[0], tuple(names[1:])) if names else None

    def _collect(self, kernel: str, reports: int) -> Report:
        report, view = Report(), native.ReportView()
        runtime = native.runtime()
        for i in range(runtime.msl_report_count(reports)):
            runtime.msl_report_get(reports, i, ctypes.byref(view))
            thread = None
            if view.has_thread:
                thread = ThreadPosition(tuple(view.threadgroup), tuple(view.thread), view.simdgroup, view.lane)
            report.findings.append(
                Finding(
                    view.kind.decode(),
                    kernel,
                    view.message.decode(errors="replace"),
                    self._location(view.pc),
                    self._location(view.other_pc),
                    thread,
                    view.count,
                )
            )
        runtime.msl_reports_free(reports)
        return report


class Kernel:
    """A kernel that can be dispatched."""

    def __init__(self, library: Library, declaration: KernelDeclaration, entry: int):
        self.library = library
        self.declaration = declaration
        self._entry = entry

    @property
    def name(self) -> str:
        return self.declaration.name

    def dispatch(
        self,
        groups=None,
        threadgroup=(1, 1, 1),
        buffers: Sequence | Mapping = (),
        *,
        threads=None,
        threadgroup_memory: Sequence | Mapping = (),
        layout: str | None = None,
        workers: int = 0,
        shuffle: bool = False,
        seed: int = 1,
        zero_cooperative: bool = False,
        device_races: bool = True,
        uninitialised: bool = True,
        exit_barriers: bool = True,
    ) -> DispatchResult:
        """Runs the kernel over a grid and waits for it.

        Args:
            groups: threadgroups per grid, one to three numbers; or give `threads`, the threads per grid, in which case
                the threadgroups at the far edges are smaller where it does not divide.
            threadgroup: threads per threadgroup, one to three numbers.
            buffers: the arguments by buffer index: arrays and tensors (written in place), bytes and numpy scalars
                (constants), `Buffer`, `Output`, `Tensor`, or a pair of one of them and an offset in bytes.
            threadgroup_memory: bytes of `[[threadgroup(i)]]` by index.
            layout: of cooperative tensors, "m5", "pre_m5" or "scrambled"; default is the library's.
            workers: OS threads; 0 is one a core, and one in a checked library so that runs repeat exactly.
            shuffle: random order of lanes and simdgroups, from `seed`.
            zero_cooperative: fresh cooperative tensors hold zeros; otherwise NaN, since MSL leaves them undefined.
            device_races, uninitialised, exit_barriers: switch off the reports of races between threadgroups, of reads
                of memory that was never written, and of barriers that returned threads do not reach.

        Returns:
            The findings and statistics of this dispatch; the findings also go to `library.report`.

        Raises:
            ValueError: a shape, index or limit is wrong, before anything runs.
            KernelFaultError: the kernel crashed; its outputs are incomplete.
        """
        size = self._size3("threadgroup", threadgroup)
        self._check_threadgroup(size)
        if (groups is None) == (threads is None):
            raise ValueError(f"{self.name}: expected either groups or threads, got {groups} and {threads}")
        if threads is not None:
            exact = self._size3("threads", threads)
            grid = tuple((t + s - 1) // s for t, s in zip(exact, size, strict=True))
        else:
            exact, grid = (0, 0, 0), self._size3("groups", groups)

        layout = layout or self.library.layout
        if layout not in LAYOUTS:
            raise ValueError(f"{self.name}: expected layout to be one of {', '.join(LAYOUTS)}, got {layout!r}")
        options = native.Options(
            workers=workers,
            checked=self.library.checked,
            shuffle=shuffle,
            layout=LAYOUTS[layout],
            zero_cooperative=zero_cooperative,
            device_races=device_races,
            uninitialised=uninitialised,
            exit_barriers=exit_barriers,
            seed=seed,
            threadgroup_limit=THREADGROUP_MEMORY_LIMIT,
        )
        bound = BoundBuffers(self._by_index("buffers", buffers, native.BUFFERS), self._buffer_parameters())
        try:
            stats, report = self._run(grid, size, exact, threads is not None, bound, threadgroup_memory, options)
            self.library.report.findings.extend(report)
            bound.copy_back()
        finally:
            bound.release()
        if stats.aborted:
            raise KernelFaultError(self.name, report)
        return DispatchResult(
            report,
            stats.seconds,
            stats.cpu_seconds,
            stats.switches,
            stats.simd_operations,
            stats.barriers,
            stats.threadgroup_bytes,
            stats.workers,
        )

    def _run(self, grid, size, exact, is_exact, bound, threadgroup_memory, options) -> tuple[native.Stats, Report]:
        stats = native.Stats()
        if 0 in grid:
            return stats, Report()
        memory = (ctypes.c_uint64 * native.THREADGROUP_BUFFERS)()
        for index, nbytes in self._by_index("threadgroup_memory", threadgroup_memory, len(memory)).items():
            memory[index] = nbytes
        bindings = (native.Binding * max(1, len(bound.bindings)))(*bound.bindings)
        dispatch = native.Dispatch(
            entry=self._entry,
            library=ctypes.pointer(self.library._info),
            groups=grid,
            threadgroup=size,
            threads=exact,
            exact=is_exact,
            bindings=len(bound.bindings),
            binding=bindings,
            threadgroup_bytes=memory,
        )
        reports = native.runtime().msl_dispatch(ctypes.byref(dispatch), ctypes.byref(options), ctypes.byref(stats))
        return stats, self.library._collect(self.name, reports)

    def _buffer_parameters(self) -> dict:
        return {int(p.index): p for p in self.declaration.parameters if p.kind == BUFFER and p.index.isdigit()}

    def _size3(self, what: str, value) -> tuple[int, int, int]:
        sizes = (value,) if isinstance(value, int) else tuple(int(v) for v in value)
        if not 1 <= len(sizes) <= 3 or min(sizes) < 0:
            raise ValueError(f"{self.name}: expected {what} to be one to three sizes, got {value}")
        return (*sizes, 1, 1)[:3]

    def _check_threadgroup(self, size: tuple[int, int, int]) -> None:
        count = size[0] * size[1] * size[2]
        limit = self.declaration.max_threads or native.MAX_THREADS
        if not 1 <= count <= limit:
            raise ValueError(f"{self.name}: expected 1 to {limit} threads per threadgroup, got {count}")

    def _by_index(self, what: str, values: Sequence | Mapping, limit: int) -> dict:
        pairs = dict(values) if isinstance(values, Mapping) else dict(enumerate(values))
        for index in pairs:
            if not 0 <= index < limit:
                raise ValueError(f"{self.name}: expected indices of {what} from 0 to {limit - 1}, got {index}")
        return pairs
