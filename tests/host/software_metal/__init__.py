"""A Metal device in software, on Linux: torch's "mps" device, whose kernels the MSL runner executes.

The Objective-C++ and C++ of the MPS backend (csrc/runtime, csrc/mps) runs on it as it is, under torch's MPS dispatch
key, on GNUstep. What it hands to Metal is what a Mac would get: the same text of the kernel, function constants,
bindings and grid. What Metal would not forgive raises: an encoder off its queue, an argument that was not bound, an
offset outside of its buffer, a finding of the runner.
"""

import ctypes
import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from torch_mtl4 import _ops

from . import build
from .runner import COMPILING, Gpu, Runner

LANGUAGES = {(): (3, 1), ("tensor_ops",): (4, 0), ("tensor_ops", "scale_planes"): (4, 1)}  # of tiers


class SoftwareMetal:
    """The device of this process. There is one, whose GPU can be exchanged."""

    def __init__(self):
        device, backend = build.build()
        self._library = ctypes.CDLL(str(device), mode=ctypes.RTLD_GLOBAL)
        self._library.software_metal_alive.restype = ctypes.c_int64
        self.runner = Runner()
        self._library.software_metal_set_runner(ctypes.byref(self.runner.callbacks))
        torch.ops.load_library(str(backend))

    def insert(self, gpu: Gpu) -> Gpu:
        """From now on tensors live on this GPU. One that was here before keeps what was compiled for it."""
        number = next((n for n, known in self.runner.gpus.items() if known is gpu), len(self.runner.gpus) + 1)
        self.runner.gpus[number] = gpu
        self._library.software_metal_set_device(
            ctypes.c_uint64(number), f"applegpu_{gpu.architecture}".encode(), *map(ctypes.c_int, gpu.system)
        )
        return gpu

    def ready(self, gpu: Gpu) -> Gpu:
        """Inserts it and runs its self-checks, which are none of the dispatches that a caller wants to see."""
        self.insert(gpu)
        _ops.mps_status()
        gpu.dispatches, gpu.compiled = [], 0
        return gpu

    def violate(self, case: str) -> str:
        """What this device says to a case of violations.mm."""
        self._library.software_metal_violate.restype = ctypes.c_char_p
        said = self._library.software_metal_violate(case.encode())
        if said is None:
            raise ValueError(f"violate: expected a case of violations.mm, got {case!r}")
        return said.decode()

    def alive(self, name: str) -> int:
        """How many objects of an Objective-C class there are: "SoftwareBuffer"."""
        return self._library.software_metal_alive(name.encode())


@functools.cache
def software_metal() -> SoftwareMetal:
    """Builds what is needed (a minute, once) and loads it."""
    return SoftwareMetal()


def gpu_of(caps: str, **options) -> Gpu:
    """The GPU of caps as csrc/plan/device_caps.h writes them; it does not take the language of tiers that they lack."""
    architecture, system, *tiers = caps.split()
    major, _, minor = system.removeprefix("macos").partition(".")
    return Gpu(architecture, (int(major), int(minor or 0)), LANGUAGES[tuple(tiers)], options=options)


@contextmanager
def on_software_metal(caps: str, **options) -> Iterator[Gpu]:
    """Within it the ops of this package, called on CPU tensors, run on the software device and come back.

    A stand-in for torch_mtl4.msl_backend.emulated, with its options, by way of everything that a Mac would execute.
    """
    compiling = {key: value for key, value in options.items() if key in COMPILING}
    gpu = software_metal().ready(_compiled_for(caps, tuple(compiling.items())))
    gpu.options = options
    overridden = torch.library.Library("torch_mtl4", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators,  other operators may also be overr")
            for name in ops():
                op = getattr(torch.ops.torch_mtl4, name).default
                overridden.impl(name, functools.partial(_there_and_back, op), "CPU", allow_override=True)
        yield gpu
    finally:
        overridden._destroy()


@functools.cache
def _compiled_for(caps: str, options: tuple) -> Gpu:
    return gpu_of(caps, **dict(options))


def ops() -> list[str]:
    """The ops that have an MPS implementation and results."""
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith("torch_mtl4::")]
    names = {schema.name for schema in schemas if schema.returns}
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return sorted(name.split("::")[1] for name in names if has_kernel(name, "MPS"))


def moved(value, device: str):
    """The value, or a tuple of them, with its tensors on the device; strides and offsets are kept."""
    if isinstance(value, tuple):
        return tuple(moved(each, device) for each in value)
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype == torch.float64:
        pytest.skip("mps has no float64")
    storage = value.untyped_storage()
    dense = value.new_empty(0).set_(storage, 0, (storage.nbytes() // value.element_size(),))
    return dense.to(device).as_strided(value.shape, value.stride(), value.storage_offset())


def _there_and_back(op, *arguments, **keywords):
    there = op(*(moved(a, "mps") for a in arguments), **{key: moved(a, "mps") for key, a in keywords.items()})
    return tuple(t.cpu() for t in there) if isinstance(there, tuple) else there.cpu()
