"""A custom kernel on MPS tensors, on torch's stream: its text is compiled by the system when it first runs."""

from collections.abc import Mapping

from torch import Tensor

from torch_mtl4 import _ops
from torch_mtl4.backends import backend_status
from torch_mtl4.custom.launch import Launch
from torch_mtl4.custom.source import INLINE, Specialization
from torch_mtl4.ops._errors import expected

_MACOS = 26  # the first whose compiler knows MSL 4.0, and so tensors


def run(kernel: Specialization, tensors: Mapping[str, Tensor], launch: Launch) -> None:
    """Encodes the kernel and returns.

    Raises:
        NotImplementedError: the system is older than macOS 26.
        RuntimeError: Metal does not compile the text; the message has the lines, those of the body.
    """
    operands = [tensors[operand.name] for operand in kernel.operands]
    try:
        _ops.run_metal(kernel.name, kernel.text(INLINE), operands, launch.grid, launch.threadgroup)
    except RuntimeError as error:
        if system := _older_system():
            wanted = f"macOS {_MACOS} or newer, which has MSL 4.0 and its tensors"
            try:
                expected(NotImplementedError, kernel.signature.op, wanted, system)
            except NotImplementedError as clear:
                raise clear from error
        raise


def _older_system() -> str:
    """The system as plans see it, if it is too old."""
    words = backend_status()["mps"].detail.split()
    system = next((word for word in words if word.startswith("macos")), "")
    return system if system and int(system.removeprefix("macos").split(".")[0]) < _MACOS else ""
