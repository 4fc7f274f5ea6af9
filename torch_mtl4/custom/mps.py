"""A custom kernel on MPS tensors, on torch's stream: its text is compiled by the system when it first runs."""

from collections.abc import Mapping

from torch import Tensor

from torch_mtl4 import _ops
from torch_mtl4.custom.launch import Launch
from torch_mtl4.custom.runner import layout_of
from torch_mtl4.custom.source import INLINE, Specialization
from torch_mtl4.ops._errors import expected

_MACOS = 26  # the first whose compiler knows MSL 4.0, and so tensors


def run(kernel: Specialization, tensors: Mapping[str, Tensor], launch: Launch) -> None:
    """Encodes the kernel and returns.

    Raises:
        NotImplementedError: the system is older than macOS 26.
        RuntimeError: Metal does not compile the text; the message has its lines, those of the body.
    """
    _check_system(kernel.signature.op)
    operands = [tensors[operand.name] for operand in kernel.operands]
    _ops.run_metal(kernel.name, kernel.text(INLINE), operands, layout_of(operands), launch.grid, launch.threadgroup)


def _check_system(op: str) -> None:
    for line in _ops.mps_status().splitlines():
        name, available, detail = line.split(" ", 2)
        if name != "mps":
            continue
        if available != "yes":
            expected(NotImplementedError, op, "an MPS backend", detail)
        macos = next(word for word in detail.split() if word.startswith("macos"))
        if int(macos.removeprefix("macos").split(".")[0]) < _MACOS:
            expected(NotImplementedError, op, f"macOS {_MACOS} or newer, which has MSL 4.0 and its tensors", macos)
