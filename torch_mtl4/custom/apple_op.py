"""The torch op coreai_metal_kernels::<name> of a TorchMetalKernel: on each device, fake, and with its gradient."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_mtl4.custom import autograd, mps, registration, runner
from torch_mtl4.custom.apple_checks import LIST, SINGLE
from torch_mtl4.custom.execution import execute
from torch_mtl4.custom.signature import TENSOR
from torch_mtl4.ops._errors import expected

if TYPE_CHECKING:
    from torch_mtl4.custom.apple import TorchMetalKernel

NAMESPACE = "coreai_metal_kernels"
# An int may be symbolic: a graph with one can be linted, where it could not be traced otherwise.
_TYPES = {TENSOR: "Tensor", "int": "SymInt", "float": "float", "bool": "bool"}


def make_op(kernel: "TorchMetalKernel") -> "torch.library.CustomOpDef":
    """Defines the op, whose last arguments are the sizes of a call as tensors of uint32."""
    count = len(kernel.signature.inputs)

    def run(*args):
        return _as_annotated(kernel, _run(kernel, args[:count], args[count:]))

    def fake(*args):
        given = _as_list(kernel, kernel.reference(*args[:count]))
        return _as_annotated(kernel, [t.new_empty(t.shape) for t in given])

    op = torch.library.custom_op(f"{NAMESPACE}::{kernel.name}", run, mutates_args=(), schema=_schema(kernel))
    op.register_fake(fake)
    _register_gradient(op, kernel, count)
    return op


def _schema(kernel: "TorchMetalKernel") -> str:
    # Positions tell; a kernel's names may be words that a schema does not take.
    inputs = [f"{_TYPES[i.kind]} input_{at}" for at, i in enumerate(kernel.signature.inputs)]
    sizes = ["threads_per_grid", "threads_per_thread_group", *(f"shape_{at}" for at in range(len(kernel.result_names)))]
    parameters = ", ".join((*inputs, *(f"Tensor {name}" for name in sizes)))
    results = {SINGLE: "Tensor", LIST: "Tensor[]"}.get(
        kernel.returns, f"({', '.join(['Tensor'] * len(kernel.result_names))})"
    )
    return f"({parameters}) -> {results}"


def _as_list(kernel: "TorchMetalKernel", given: Any) -> list[Tensor]:
    results = [given] if isinstance(given, Tensor) else list(given)
    if len(results) != len(kernel.result_names):
        names = ", ".join(kernel.result_names)
        expected(
            ValueError, kernel.name, f"torch_defn to return {len(kernel.result_names)} tensors ({names})", len(results)
        )
    return results


def _as_annotated(kernel: "TorchMetalKernel", results: Sequence[Tensor]) -> Any:
    if kernel.returns == SINGLE:
        return results[0]
    return list(results) if kernel.returns == LIST else tuple(results)


def _run(kernel: "TorchMetalKernel", values: Sequence, sizes: Sequence[Tensor]) -> Sequence[Tensor]:
    grid, group, *shapes = (tuple(t.tolist()) for t in sizes)
    device = next((v.device.type for v in values if isinstance(v, Tensor)), "cpu")
    on_cpu = registration.how_on_cpu(kernel) == registration.REFERENCE
    if device == "mps" or (device == "cpu" and not on_cpu):
        if not kernel.signature.tensors:
            expected(NotImplementedError, kernel.name, "an input that is a tensor, to run the body", "none")
        bound = kernel.bind(threads_per_grid=grid, threads_per_thread_group=group, result_shapes=shapes)
        return execute(bound, values, mps.run if device == "mps" else runner.run)
    given = _as_list(kernel, kernel.reference(*values))
    for name, tensor, shape in zip(kernel.result_names, given, shapes, strict=True):
        if tuple(tensor.shape) != shape:
            expected(
                ValueError,
                kernel.name,
                f"result_shapes of {name} {list(tensor.shape)}, as torch_defn gives",
                list(shape),
            )
    return registration.fresh(given, values)


def _register_gradient(op: "torch.library.CustomOpDef", kernel: "TorchMetalKernel", count: int) -> None:
    def setup_context(ctx, inputs, output):
        values = inputs[:count]
        ctx.arguments = len(inputs)
        ctx.numbers = [None if isinstance(v, Tensor) else v for v in values]
        ctx.save_for_backward(*(v for v in values if isinstance(v, Tensor)))

    def backward(ctx, *grads):
        if kernel.returns == LIST:
            grads = grads[0]
        saved = iter(ctx.saved_tensors)
        values = [
            next(saved) if i.kind == TENSOR else number
            for i, number in zip(kernel.signature.inputs, ctx.numbers, strict=True)
        ]
        found = autograd.by_reference(kernel, grads, values, ctx.needs_input_grad[:count])
        return (*found, *(None,) * (ctx.arguments - count))

    op.register_autograd(backward, setup_context=setup_context)
