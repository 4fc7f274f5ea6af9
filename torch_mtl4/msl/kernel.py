"""Dispatches a kernel: checks its arguments, binds its buffers, runs it."""

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import native
from .binding import BoundBuffers
from .cost import Cost
from .counting import read_cost
from .errors import KernelFaultError
from .frontend import BUFFER, SAMPLER, TEXTURE, THREADGROUP, KernelDeclaration, Parameter
from .report import Finding, LogMessage, Report
from .textures import Sampler

if TYPE_CHECKING:
    from .library import Library

LAYOUTS = {"m5": 0, "pre_m5": 1, "scrambled": 2}
THREADGROUP_MEMORY_LIMIT = 32 * 1024
THREADGROUP_MEMORY_GRANULE = 16


@dataclass(frozen=True)
class DispatchResult:
    """One dispatch: its findings and its statistics. Times are of this machine's CPU and say nothing of a GPU.

    `cost` is what was counted, None in a library that was compiled without `count`.
    """

    report: Report
    log: list[LogMessage]
    seconds: float
    cpu_seconds: float
    switches: int
    simdgroup_operations: int
    barriers: int
    threadgroup_bytes: int
    workers: int
    cost: Cost | None


class Kernel:
    """A kernel that can be dispatched."""

    def __init__(self, library: "Library", declaration: KernelDeclaration, entry: int):
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
        textures: Sequence | Mapping = (),
        samplers: Sequence | Mapping = (),
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
            textures: the textures by index: `Texture`, or an array that needs no options of it; `Output` of either.
            samplers: the `Sampler` by index, for kernels that take samplers as arguments.
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
        self._check_grid(grid, size)
        layout = layout or self.library.layout
        if layout not in LAYOUTS:
            raise ValueError(f"{self.name}: expected layout to be one of {', '.join(LAYOUTS)}, got {layout!r}")
        memory = self._threadgroup_memory(threadgroup_memory)
        arguments = self._arguments(buffers)
        images = self._complete("textures", textures, TEXTURE, native.TEXTURES)
        sampling = self._samplers(samplers)

        checked = self.library.checked
        options = native.Options(
            workers=workers,
            checked=checked,
            counted=self.library.counted,
            shuffle=shuffle,
            layout=LAYOUTS[layout],
            zero_cooperative=zero_cooperative,
            device_races=device_races,
            uninitialised=uninitialised,
            exit_barriers=exit_barriers,
            seed=seed,
            threadgroup_limit=THREADGROUP_MEMORY_LIMIT,
        )
        bound = BoundBuffers(self.name, arguments, self._parameters(BUFFER), images, checked)
        try:
            is_exact = threads is not None
            stats, report, log, cost = self._run(grid, size, exact, is_exact, bound, sampling, memory, options)
            if checked and uninitialised and not stats.aborted and 0 not in grid:
                for message in bound.unwritten():
                    report.findings.append(Finding("unwritten-output", self.name, message, None, None, None, 1))
            self.library.report.findings.extend(report)
            self.library.log.extend(log)
            self.library.keep_cost(None if stats.aborted else cost)
            bound.copy_back()
        finally:
            bound.release()
        if stats.aborted:
            raise KernelFaultError(self.name, report)
        return DispatchResult(
            report,
            log,
            stats.seconds,
            stats.cpu_seconds,
            stats.switches,
            stats.simd_operations,
            stats.barriers,
            stats.threadgroup_bytes,
            stats.workers,
            cost,
        )

    def _run(
        self, grid, size, exact, is_exact, bound, sampling, memory, options
    ) -> tuple[native.Stats, Report, list[LogMessage], Cost | None]:
        stats = native.Stats()
        if 0 in grid:
            return stats, Report(), [], Cost(self.name, 0, 0) if self.library.counted else None
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
            textures=bound.textures,
            samplers=sampling,
        )
        reports = native.runtime().msl_dispatch(ctypes.byref(dispatch), ctypes.byref(options), ctypes.byref(stats))
        cost = None
        if self.library.counted:
            threads = math.prod(exact) if is_exact else math.prod(grid) * math.prod(size)
            cost = read_cost(self.name, reports, bound, grid, threads, stats.threadgroup_bytes)
        return stats, *self.library.collect(self.name, reports), cost

    def _parameters(self, kind: int) -> dict[int, Parameter]:
        """The parameters of one kind by index, as far as their index is a number."""
        return {int(p.index): p for p in self.declaration.parameters if p.kind == kind and p.index.isdigit()}

    def _arguments(self, buffers: Sequence | Mapping) -> dict:
        arguments = self._by_index("buffers", buffers, native.BUFFERS)
        parameters = self._parameters(BUFFER)
        for index, parameter in sorted(parameters.items()):
            if index not in arguments and not parameter.condition:
                raise ValueError(
                    f"{self.name}: expected buffers[{index}] ({parameter.name}), got none; None leaves it unbound"
                )
        complete = len(parameters) == sum(p.kind == BUFFER for p in self.declaration.parameters)
        unknown = [index for index in arguments if index not in parameters]
        if complete and unknown and not isinstance(buffers, Mapping):
            last = max(parameters, default=-1)
            raise ValueError(f"{self.name}: expected buffers up to index {last}, got one more at {max(unknown)}")
        return arguments

    def _complete(self, what: str, values: Sequence | Mapping, kind: int, limit: int) -> dict:
        """The arguments of a kind by index, none of them missing."""
        given = self._by_index(what, values, limit)
        for index, parameter in self._parameters(kind).items():
            if index not in given and not parameter.condition:
                raise ValueError(f"{self.name}: expected {what}[{index}] ({parameter.name}), got none")
        return given

    def _samplers(self, values: Sequence | Mapping):
        samplers = (ctypes.POINTER(native.Sampler) * native.SAMPLERS)()
        for index, value in self._complete("samplers", values, SAMPLER, native.SAMPLERS).items():
            if not isinstance(value, Sampler):
                raise TypeError(f"{self.name}: expected samplers[{index}] to be a Sampler, got {type(value).__name__}")
            samplers[index] = ctypes.pointer(value.binding())
        return samplers

    def _threadgroup_memory(self, values: Sequence | Mapping):
        memory = (ctypes.c_uint64 * native.THREADGROUP_BUFFERS)()
        given = self._complete("threadgroup_memory", values, THREADGROUP, len(memory))
        for index, nbytes in given.items():
            if not isinstance(nbytes, int) or nbytes < 0 or nbytes % THREADGROUP_MEMORY_GRANULE:
                raise ValueError(
                    f"{self.name}: expected threadgroup_memory[{index}] to be a multiple of "
                    f"{THREADGROUP_MEMORY_GRANULE} bytes, got {nbytes}"
                )
            memory[index] = nbytes
        if sum(memory) > THREADGROUP_MEMORY_LIMIT:
            raise ValueError(
                f"{self.name}: expected threadgroup_memory of at most {THREADGROUP_MEMORY_LIMIT} bytes, "
                f"got {sum(memory)}"
            )
        return memory

    def _size3(self, what: str, value) -> tuple[int, int, int]:
        sizes = (value,) if isinstance(value, int) else tuple(int(v) for v in value)
        if not 1 <= len(sizes) <= 3 or min(sizes) < 0:
            raise ValueError(f"{self.name}: expected {what} to be one to three sizes, got {value}")
        return (*sizes, 1, 1)[:3]

    def _check_grid(self, grid: tuple[int, int, int], size: tuple[int, int, int]) -> None:
        # Positions in the grid are 32-bit numbers, in Metal as here.
        threads = tuple(g * s for g, s in zip(grid, size, strict=True))
        if max(threads) >= 1 << 32:
            raise ValueError(f"{self.name}: expected fewer than 2^32 threads per grid in each dimension, got {threads}")

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
