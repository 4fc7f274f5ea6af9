"""Which backends there are on this machine, and why others are not."""

import sys
from typing import NamedTuple

import torch

from torch_mtl4 import _native, _ops


class BackendStatus(NamedTuple):
    """Whether a backend, or a tier of one, can be used; what it is, or why it cannot."""

    available: bool
    detail: str


def backend_status() -> dict[str, BackendStatus]:
    """What the ops of this package can run on.

    Returns:
        By name: "cpu", with the instruction set of its kernels; "mps", with the GPU as plans see it; and where there is
        a GPU, the tiers of kernels that not every one has: "mps.tensor_ops" (matmul2d of macOS 26.2) and
        "mps.scale_planes" (fp8 operands with scales, of macOS 27). At first use small problems with known results are
        run through every kind of kernel. A tier is available if some of its kernels build on this system and pass; what
        does not is listed as "mps.<kernels>_<type>" with what came out wrong, and is not used.
    """
    status = {"cpu": BackendStatus(True, _native.cpu_isa())}
    if not torch._C._dispatch_has_kernel_for_dispatch_key(_ops.mps_status.name(), "CompositeExplicitAutograd"):
        why = "not built" if sys.platform == "darwin" else f"not built: Metal is not on {sys.platform}"
        return status | {"mps": BackendStatus(False, why)}
    for line in _ops.mps_status().splitlines():
        name, available, detail = line.split(" ", 2)
        status[name] = BackendStatus(available == "yes", detail)
    return status
