"""Gradients of kernels: by a function of the user's, by the reference, or an error."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torch_mtl4.custom.launch import as_results
from torch_mtl4.custom.signature import TENSOR, Signature
from torch_mtl4.ops._errors import expected

if TYPE_CHECKING:
    from torch_mtl4.custom.kernel import MetalKernel

BY_REFERENCE = "reference"


def register(library: torch.library.Library, op: str, signature: Signature, kernel: Callable[[], "MetalKernel"]):
    """Registers the gradient; `kernel()` is the kernel that has the op when it runs."""
    if signature.in_place:
        _register_in_place(library, op, signature)
        return

    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        values = signature.complete(inputs)
        outputs = () if kernel().backward in (None, BY_REFERENCE) else _tuple(output)
        ctx.numbers = [None if isinstance(v, Tensor) else v for v in values]
        ctx.save_for_backward(*(v for v in values if isinstance(v, Tensor)), *outputs)
        ctx.results = [(tuple(t.shape), t.dtype, t.device) for t in _tuple(output)]

    def backward(ctx, *grads):
        saved = iter(ctx.saved_tensors)
        values = [
            next(saved) if i.kind == TENSOR else number for i, number in zip(signature.inputs, ctx.numbers, strict=True)
        ]
        if all(grad is None for grad in grads):
            return (None,) * len(values)
        way = kernel().backward
        if way is None:
            expected(
                NotImplementedError, signature.op, "backward (a function, or 'reference') where a gradient is wanted",
                "none",
            )  # fmt: skip
        # Of an output that takes no part in the loss, and of one of whole numbers.
        grads = [
            torch.zeros(shape, dtype=dtype, device=device) if grad is None and dtype.is_floating_point else grad
            for grad, (shape, dtype, device) in zip(grads, ctx.results, strict=True)
        ]
        # As many as were given: defaults that were left out have no place.
        needed = list(ctx.needs_input_grad) + [False] * (len(values) - len(ctx.needs_input_grad))
        if way == BY_REFERENCE:
            found = by_reference(kernel(), grads, values, needed)
        else:
            found = _by_function(signature, way, grads, values, list(saved), needed)
        return tuple(found[: len(ctx.needs_input_grad)])

    torch.library.register_autograd(op, backward, setup_context=setup_context, lib=library)


def by_reference(kernel: "MetalKernel", grads: Sequence, values: Sequence, needed: Sequence[bool]) -> list:
    """Differentiates the reference; differentiable itself where the reference is twice."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        given = [v.view_as(v) if isinstance(v, Tensor) else v for v in values]
        for value, wanted in zip(given, needed, strict=True):
            if wanted and not value.requires_grad:
                value.requires_grad_()
        results = as_results(kernel.signature, kernel.reference(*given))
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None and r.requires_grad]
    wanted = [at for at, each in enumerate(needed) if each]
    gradients: list = [None] * len(values)
    if pairs and wanted:
        outputs, output_grads = zip(*pairs, strict=True)
        found = torch.autograd.grad(
            outputs, [given[at] for at in wanted], output_grads, allow_unused=True, create_graph=create_graph
        )
        for at, gradient in zip(wanted, found, strict=True):
            gradients[at] = gradient
    return gradients


def _by_function(
    signature: Signature, function: Callable, grads: Sequence, values: Sequence, outputs: Sequence, needed: Sequence
) -> list:
    found = function(*grads, *values, *outputs)
    found = (found,) if isinstance(found, Tensor) or found is None else found
    names = signature.tensors
    if not isinstance(found, (tuple, list)) or len(found) != len(names):
        got = len(found) if isinstance(found, (tuple, list)) else type(found).__name__
        wanted = f"backward to return {len(names)} gradients, one an input tensor ({', '.join(names)})"
        expected(ValueError, signature.op, wanted, got)
    given = iter(found)
    gradients = []
    for i, value, wanted in zip(signature.inputs, values, needed, strict=True):
        gradient = next(given) if i.kind == TENSOR else None
        if gradient is not None:
            _check_gradient(signature.op, i.name, gradient, value)
        gradients.append(gradient if wanted else None)
    return gradients


def _check_gradient(op: str, name: str, gradient: object, value: Tensor) -> None:
    what = f"backward's gradient of {name} to be {list(value.shape)} of {value.dtype}"
    if not isinstance(gradient, Tensor):
        expected(TypeError, op, what, type(gradient).__name__)
    if gradient.shape != value.shape or gradient.dtype != value.dtype:
        expected(ValueError, op, what, f"{list(gradient.shape)} of {gradient.dtype}")


def _register_in_place(library: torch.library.Library, op: str, signature: Signature) -> None:
    """Torch has no gradients of ops that write to their inputs: refused, and the version of these inputs is raised."""
    namespace, name = op.split("::")
    written = [at for at, i in enumerate(signature.inputs) if i.name in signature.in_place]

    def overload():
        return getattr(getattr(torch.ops, namespace), name).default

    def refuse(keys, *args):
        if torch.is_grad_enabled():
            for i, value in zip(signature.inputs, args, strict=False):
                if isinstance(value, Tensor) and value.requires_grad:
                    expected(
                        NotImplementedError, signature.op,
                        f"{i.name} that needs no gradient, since the kernel works in place ({signature.in_place[0]})",
                        "one that does",
                    )  # fmt: skip
        with torch._C._AutoDispatchBelowAutograd():
            return overload().redispatch(keys & torch._C._after_autograd_keyset, *args)

    def raise_versions(keys, *args):
        for at in written:
            torch.autograd.graph.increment_version(args[at])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            return overload().redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *args)

    library.impl(name, refuse, "Autograd", with_keyset=True)
    library.impl(name, raise_versions, "ADInplaceOrView", with_keyset=True)


def _tuple(output) -> tuple:
    return (output,) if isinstance(output, Tensor) else tuple(output or ())
