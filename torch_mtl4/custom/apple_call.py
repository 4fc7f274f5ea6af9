"""A TorchMetalKernel with the sizes of one call: what execution, checks and costs take for a kernel."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_mtl4.custom.launch import Launcher, Result
from torch_mtl4.custom.signature import TENSOR
from torch_mtl4.custom.source import HANDLE, MSL_TYPES, Operand, Specialization, literal

if TYPE_CHECKING:
    from torch_mtl4.custom.apple import TorchMetalKernel


@dataclass(frozen=True)
class _Text:
    source: str
    helpers: str


class BoundCall:
    """See above; sizes are as in the call of `torch_mtl4.TorchMetalKernel`."""

    def __init__(self, kernel: "TorchMetalKernel", grid: Sequence, threadgroup: Sequence, shapes: Sequence):
        self._kernel = kernel
        self._sizes = {"threads_per_grid": grid, "threads_per_thread_group": threadgroup, "result_shapes": shapes}
        self.name, self.signature, self.reference = kernel.name, kernel.signature, kernel.reference
        self.definition = _Text(kernel.src, kernel.helpers)
        self.launcher = Launcher(self.signature, kernel.reference, grid, threadgroup, lambda **_: shapes, None)

    def source(self, *args: Any, form: str = HANDLE, **keywords: Any) -> str:
        """The whole MSL text for such inputs."""
        values = self.signature.bind(args, keywords)
        self.signature.check(values)
        return self.specialize(values).text(form)

    def specialize(self, values: Sequence, results: Sequence[Result] | None = None) -> Specialization:
        """The text for these inputs, and for what they result in (None: the launcher says)."""
        return specialize(self._kernel, values, self.launcher.results(values) if results is None else results)

    def __call__(self, *args: Any) -> Any:
        """The call, for these inputs."""
        return self._kernel(*args, **self._sizes)


def specialize(kernel: "TorchMetalKernel", values: Sequence, results: Sequence[Result]) -> Specialization:
    """The text for these inputs, with the placeholders of element types replaced as Apple's class does."""
    operands, scalars, types = [], [], {}
    for i, value in zip(kernel.signature.inputs, values, strict=True):
        if i.kind == TENSOR:
            operands.append(Operand(i.name, value.dim(), value.dtype))
            types[i.name] = MSL_TYPES[value.dtype]
        else:
            scalars.append((i.kind, i.name, literal(float(value) if i.kind == "float" else value)))
            types[i.name] = i.kind
    operands += [Operand(n, len(r.shape), r.dtype) for n, r in zip(kernel.signature.outputs, results, strict=True)]
    body, helpers = kernel.src, kernel.helpers
    # In the order of the inputs, which matters where one placeholder is part of another.
    for name in kernel.input_names:
        if placeholder := kernel.dtype_templates.get(name):
            body, helpers = (text.replace(placeholder, types[name]) for text in (body, helpers))
    return Specialization(kernel.signature, body, helpers, tuple(operands), tuple(scalars))
