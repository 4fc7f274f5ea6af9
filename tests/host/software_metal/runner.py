"""What software Metal asks of Python: sources are compiled and kernels run by the MSL runner."""

import ctypes
import functools
import traceback
from dataclasses import dataclass, field

import numpy as np

from torch_mtl4 import msl
from torch_mtl4.msl import tiers

ERROR = (ctypes.c_void_p, ctypes.c_size_t)
UNBOUND, NIL, BUFFER, BYTES = range(4)
COMPILING = ("checked", "count")  # options of compiling, the others are of a dispatch


class Slot(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("memory", ctypes.c_void_p), ("length", ctypes.c_uint64),
                ("offset", ctypes.c_uint64))  # fmt: skip


class Dispatch(ctypes.Structure):
    _fields_ = (("pipeline", ctypes.c_uint64), ("groups", ctypes.c_uint64 * 3), ("threads", ctypes.c_uint64 * 3),
                ("grid", ctypes.c_uint64 * 3), ("slots", Slot * 31))  # fmt: skip


class Callbacks(ctypes.Structure):
    """struct SoftwareRunner of interface.h."""

    _fields_ = (
        ("compile", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64,
                                     ctypes.c_bool, *ERROR)),
        ("specialize", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p,
                                        ctypes.c_char_p, *ERROR)),
        ("pipeline", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64),
                                      *ERROR)),
        ("dispatch", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.POINTER(Dispatch), *ERROR)),
    )  # fmt: skip


@dataclass
class Gpu:
    """A GPU and its system.

    Attributes:
        architecture, system: "g17s", (26, 2).
        language: the newest one that its compiler takes, (4, 1).
        refused: kernels that its compiler does not take, by name.
        edits: what its compiler makes of a text, in place of what stands there.
        edited: in which languages; None: in all.
        options: of every dispatch, as msl.Kernel.dispatch takes them; "checked" and "count" are of compiling.
        dispatches: (kernel, result) of each so far.
        compiled: how many libraries were compiled.
    """

    architecture: str
    system: tuple[int, int]
    language: tuple[int, int] = (4, 1)
    refused: frozenset[str] = frozenset()
    edits: dict[str, str] = field(default_factory=dict)
    edited: tuple[int, int] | None = None
    options: dict = field(default_factory=dict)
    dispatches: list[tuple[str, msl.DispatchResult]] = field(default_factory=list)
    compiled: int = 0

    def tier(self, language: int) -> str:
        """The runner's name of the newest system that it knows up to this one, with that language."""
        known = [tier for tier in tiers.TIERS.values() if tier.macos <= self.system]
        return f"{max(known, key=lambda tier: tier.macos).name}:{language >> 16}.{language & 0xFFFF}"

    @property
    def layout(self) -> str:
        return "m5" if int("".join(c for c in self.architecture if c.isdigit())) >= 17 else "pre_m5"


@dataclass(frozen=True)
class _Library:
    gpu: Gpu
    source: str
    tier: str
    kernels: tuple[str, ...]


class Runner:
    """The functions behind Metal's objects, by their numbers."""

    def __init__(self):
        self.gpus: dict[int, Gpu] = {}
        self._libraries: dict[int, _Library] = {}
        self._functions: dict[int, tuple[Gpu, msl.Kernel]] = {}
        self._pipelines: dict[int, tuple[Gpu, msl.Kernel]] = {}
        self.callbacks = Callbacks(*(kind(_answering(getattr(self, f"_{name}"))) for name, kind in Callbacks._fields_))

    def _compile(self, device, library, source, language, safe_math):
        gpu = self.gpus[device]
        if not safe_math:
            raise ValueError("the kernels of this package need safe mathematics, which Metal's default is not")
        version = language >> 16, language & 0xFFFF
        if version > gpu.language:
            raise ValueError("this GPU does not take Metal {}.{}".format(*version))
        text, tier = source.decode("ascii"), gpu.tier(language)
        for old, new in gpu.edits.items() if gpu.edited in (None, version) else ():
            text = text.replace(old, new)
        self._libraries[library] = _Library(gpu, text, tier, _checked(text, tier))
        gpu.compiled += 1

    def _specialize(self, library, function, kernel, constants):
        of, name = self._libraries[library], kernel.decode()
        if name not in of.kernels:
            raise ValueError(f"there is no kernel {name}, there are {', '.join(of.kernels)}")
        if name in of.gpu.refused:
            raise ValueError(f"this GPU does not take {name}")
        values, types = {}, {}
        for line in constants.decode().splitlines():
            index, kind, value = _parts(line)
            types[index], values[index] = kind, value
        compiling = tuple((key, of.gpu.options[key]) for key in COMPILING if key in of.gpu.options)
        built = _built(of.source, of.tier, name, tuple(sorted(values.items())), compiling)
        declared = {c.index: c for c in built.constants}
        for index, constant in declared.items():
            if index in types and types[index] != constant.type:
                raise ValueError(f"{constant.name} is a {constant.type}, got a {types[index]}")
        self._functions[function] = of.gpu, built.kernel(name)

    def _pipeline(self, function, pipeline, max_threads):
        self._pipelines[pipeline] = self._functions[function]
        _, kernel = self._functions[function]
        max_threads[0] = kernel.declaration.max_threads or 1024

    def _dispatch(self, dispatch):
        d = dispatch.contents
        gpu, kernel = self._pipelines[d.pipeline]
        buffers = {index: _argument(slot) for index, slot in enumerate(d.slots) if slot.kind != UNBOUND}
        options = {key: value for key, value in gpu.options.items() if key not in COMPILING}
        options.setdefault("layout", gpu.layout)
        grid = {"threads": tuple(d.grid)} if any(d.grid) else {"groups": tuple(d.groups)}
        result = kernel.dispatch(threadgroup=tuple(d.threads), buffers=buffers, **grid, **options)
        gpu.dispatches.append((kernel.name, result))
        if result.report:
            raise AssertionError(f"{kernel.name} on {gpu.architecture}:\n{result.report}")


def _parts(line: str) -> tuple[int, str, int | bool]:
    index, kind, value = line.split()
    return int(index), kind, bool(int(value)) if kind == "bool" else int(value)


def _argument(slot: Slot):
    if slot.kind == NIL:
        return None
    memory = (ctypes.c_uint8 * slot.length).from_address(slot.memory)
    if slot.kind == BYTES:
        return bytes(memory)
    return np.ctypeslib.as_array(memory), slot.offset


@functools.lru_cache(maxsize=64)
def _checked(source: str, tier: str) -> tuple[str, ...]:
    """The kernels of a source, of which Apple's compiler would refuse nothing that we know of."""
    result = msl.check(source, name="program_source", tier=tier)
    if result.findings:
        raise ValueError("\n".join(map(str, result.findings)))
    return tuple(result.kernels)


@functools.lru_cache(maxsize=512)
def _built(source: str, tier: str, kernel: str, constants: tuple, options: tuple) -> msl.Library:
    return msl.compile(
        source, name="program_source", constants=dict(constants), only=f"^{kernel}$", tier=tier, **dict(options)
    )


def _answering(function):
    """The function as C calls it: an exception becomes a text in the caller's buffer."""

    def answer(*arguments):
        *given, buffer, size = arguments
        try:
            function(*given)
        except Exception as error:
            known = isinstance(error, (ValueError, TypeError, AssertionError, msl.MslError))
            text = str(error) if known else traceback.format_exc()
            data = text.encode(errors="replace")[: size - 1] + b"\0"
            ctypes.memmove(buffer, data, len(data))
            return False
        return True

    return answer
