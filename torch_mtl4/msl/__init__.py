"""Metal Shading Language on the CPU: compiles unmodified .metal files with clang, runs them, and finds their bugs.

    lib = torch_mtl4.msl.compile("kernel.metal")
    lib.kernel("add").dispatch(threads=1000, threadgroup=256, buffers=[a, b, c])
    assert not lib.report, lib.report

With compile(..., count=True), `lib.cost` counts what the kernel did: bytes, barriers, operations, by the rules of
`cost.py`.

`README.md` in this folder says which file does what.
"""

from .buffers import Buffer, Output
from .check import CheckResult, check
from .compile import compile
from .cost import Cost, Products, Traffic
from .errors import CompileError, CompilerNotFoundError, KernelFaultError, MslError
from .frontend import MslSyntaxError
from .kernel import DispatchResult, Kernel
from .library import Library
from .report import Finding, Location, LogMessage, Report, ThreadPosition
from .tensors import Tensor
from .textures import Sampler, Texture
from .tiers import TIERS

__all__ = [
    "TIERS",
    "Buffer",
    "CheckResult",
    "CompileError",
    "CompilerNotFoundError",
    "Cost",
    "DispatchResult",
    "Finding",
    "Kernel",
    "KernelFaultError",
    "Library",
    "Location",
    "LogMessage",
    "MslError",
    "MslSyntaxError",
    "Output",
    "Products",
    "Report",
    "Sampler",
    "Tensor",
    "Texture",
    "ThreadPosition",
    "Traffic",
    "check",
    "compile",
]
