"""Which tensors the kernel of flash_attention takes, asked before the call."""

import torch
from torch import Tensor

_MAX_HEAD_DIM = 576
# Asked once, at import: a compiled graph cannot ask the dispatcher.
_MPS_HAS_KERNEL = torch._C._dispatch_has_kernel_for_dispatch_key("torch_mtl4::flash_attention", "MPS")


def autocast_dtype(device_type: str) -> torch.dtype | None:
    """The dtype that autocast asks for on a device, None where it is off."""
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None


def why_unsupported(query: Tensor, value: Tensor) -> str | None:
    """The reason why the kernel does not take these tensors, or None.

    Shapes that do not fit together are no reason: those are the caller's error, which flash_attention names.
    """
    if query.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"dtype {query.dtype}".replace("torch.", "")
    if not _has_kernel(query.device.type):
        return f"no kernel for device {query.device.type}"
    for dim in (query.shape[-1], value.shape[-1]):
        if not 1 <= dim <= _MAX_HEAD_DIM:
            return f"head dim {dim}"
    return None


def _has_kernel(device_type: str) -> bool:
    return device_type in ("cpu", "meta") or (device_type == "mps" and _MPS_HAS_KERNEL)
