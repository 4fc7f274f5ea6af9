"""The torch ops of kernels: torch_mtl4_custom::<name>, with a fake kernel, a gradient, and who has which name."""

import threading
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_mtl4.custom import autograd, mps, runner
from torch_mtl4.custom.execution import check_in_place, execute
from torch_mtl4.custom.launch import as_results
from torch_mtl4.ops._errors import expected, traceable

if TYPE_CHECKING:
    from torch_mtl4.custom.kernel import MetalKernel

NAMESPACE = "torch_mtl4_custom"
REFERENCE, MSL = "reference", "msl"

_kernels: dict[str, "MetalKernel"] = {}
_libraries: dict[str, torch.library.Library] = {}
_lock = threading.RLock()
_on_cpu: ContextVar[str | None] = ContextVar("torch_mtl4_on_cpu", default=None)


class on_cpu:
    """Within it, kernels run on CPU tensors as asked: through their reference, or their text in the MSL runner.

    Args:
        how: "reference" or "msl".

    Raises:
        ValueError: another word.
    """

    def __init__(self, how: str):
        self._how = check_cpu("on_cpu", how)
        self._tokens: list = []

    def __enter__(self) -> None:
        self._tokens.append(_on_cpu.set(self._how))

    def __exit__(self, *_) -> None:
        _on_cpu.reset(self._tokens.pop())


def check_cpu(op: str, how: str) -> str:
    if how not in (REFERENCE, MSL):
        expected(ValueError, op, f"cpu one of {REFERENCE!r}, {MSL!r}", repr(how))
    return how


def kernels() -> dict[str, "MetalKernel"]:
    """All kernels of this process by name."""
    with _lock:
        return dict(_kernels)


def find(name: str) -> "MetalKernel":
    """The kernel of that name.

    Raises:
        ValueError: there is none: whatever makes it was not imported.
    """
    with _lock:
        if name not in _kernels:
            expected(ValueError, name, "a kernel made by metal_kernel before it is loaded or looked up", "none")
        return _kernels[name]


def register(kernel: "MetalKernel") -> torch._ops.OpOverload:
    """The op of a kernel. An equal definition takes over the op of the one before it.

    Raises:
        ValueError: another kernel has the name.
    """
    name = kernel.name
    with _lock:
        other = _kernels.get(name)
        if other is not None and other.definition != kernel.definition:
            expected(ValueError, name, "a name that no other kernel has (its remove() frees it)", "one that is in use")
        _kernels[name] = kernel
        if other is None:
            _libraries[name] = _library(kernel)
        return getattr(getattr(torch.ops, NAMESPACE), name).default


def remove(kernel: "MetalKernel") -> None:
    """Frees the name of a kernel; its op is gone."""
    with _lock:
        if _kernels.get(kernel.name) is kernel:
            del _kernels[kernel.name]
            _libraries.pop(kernel.name)._destroy()


def check_registered(kernel: "MetalKernel") -> None:
    """Raises if the op of a kernel is gone."""
    owner = _kernels.get(kernel.name)
    if owner is None or owner.op is not kernel.op:
        expected(ValueError, kernel.name, "a kernel that has its name", "one that was removed")


def _library(kernel: "MetalKernel") -> torch.library.Library:
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    try:
        name, signature = kernel.name, kernel.signature
        library.define(signature.schema())

        def on_cpu_tensors(*args):
            return _returned(_run_on_cpu(_kernels[name], signature.complete(args)))

        def on_mps_tensors(*args):
            return _returned(execute(_kernels[name], signature.complete(args), mps.run))

        @traceable
        def fake(*args):
            return _returned(_fake(_kernels[name], signature.complete(args)))

        library.impl(name, on_cpu_tensors, "CPU")
        library.impl(name, on_mps_tensors, "MPS")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)
        autograd.register(library, f"{NAMESPACE}::{name}", signature, lambda: _kernels[name])
    except BaseException:
        library._destroy()
        raise
    return library


def _returned(results: tuple[Tensor, ...]):
    """As the schema returns them."""
    return results[0] if len(results) == 1 else results or None


def _run_on_cpu(kernel: "MetalKernel", values: Sequence) -> tuple[Tensor, ...]:
    if how_on_cpu(kernel) == MSL:
        return execute(kernel, values, runner.run)
    signature = kernel.signature
    signature.check(values)
    check_in_place(signature, dict(zip((i.name for i in signature.inputs), values, strict=True)))
    given = as_results(signature, kernel.reference(*values))
    _check_reference(kernel, values, given)
    return fresh(given, values)


def how_on_cpu(kernel: Any) -> str:
    """What CPU tensors run now, "reference" or "msl"."""
    return _on_cpu.get() or kernel.cpu


def fresh(given: Sequence[Tensor], values: Sequence) -> tuple[Tensor, ...]:
    """What a reference gave, as an op has to give it: dense, in memory of no input and of no other result."""
    memory = {v.untyped_storage().data_ptr() for v in values if isinstance(v, Tensor)}
    results = []
    for t in given:
        shared = t.untyped_storage().data_ptr() in memory
        results.append(t.clone(memory_format=torch.contiguous_format) if shared else t.contiguous())
        memory.add(results[-1].untyped_storage().data_ptr())
    return tuple(results)


def _check_reference(kernel: "MetalKernel", values: Sequence, given: Sequence[Tensor]) -> None:
    """What the reference gives has the shapes and dtypes that were promised to torch.compile and to Core AI."""
    if not kernel.launcher.promises:
        return
    promised = kernel.launcher.results(values)
    for name, tensor, result in zip(kernel.signature.outputs, given, promised, strict=True):
        if tuple(tensor.shape) != result.shape or tensor.dtype != result.dtype:
            wanted = f"the reference's {name} as promised, {list(result.shape)} of {result.dtype}"
            expected(ValueError, kernel.name, wanted, f"{list(tensor.shape)} of {tensor.dtype}")


def _fake(kernel: "MetalKernel", values: Sequence) -> tuple[Tensor, ...]:
    kernel.signature.check(values)
    some = next(v for v in values if isinstance(v, Tensor))
    return tuple(some.new_empty(r.shape, dtype=r.dtype) for r in kernel.launcher.results(values))
