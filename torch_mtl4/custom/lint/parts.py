"""What the linter reads of a kernel: one of ours, or one of Apple's class."""

from dataclasses import dataclass, field
from typing import Any

from torch_mtl4.ops._errors import expected


@dataclass(frozen=True)
class KernelParts:
    """The text and signature of a kernel, and how they become a source.

    Attributes:
        inputs: names of all inputs in their order.
        scalars: those of them that are numbers.
        thread_parameters: (name, type, attribute).
        templates: tensor -> placeholder of its element type.
        in_place: inputs that the body writes to.
        own_lines: the body stands on lines of its own, not between braces on one line.
        own_namespace: helpers are in a namespace that no other kernel has.
        replaced: placeholders of templates are replaced in the text; else they are declared.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: str
    helpers: str = ""
    scalars: tuple[str, ...] = ()
    thread_parameters: tuple[tuple[str, str, str], ...] = ()
    templates: dict[str, str] = field(default_factory=dict)
    constants: tuple[str, ...] = ()
    in_place: tuple[str, ...] = ()
    own_lines: bool = True
    own_namespace: bool = True
    replaced: bool = False

    @property
    def tensors(self) -> tuple[str, ...]:
        return (*(name for name in self.inputs if name not in self.scalars), *self.outputs)


def parts_of(kernel: Any) -> KernelParts:
    """The parts of a MetalKernel, of a TorchMetalKernel (ours or Apple's), or the parts themselves.

    Raises:
        TypeError: something else.
    """
    if isinstance(kernel, KernelParts):
        return kernel
    if hasattr(kernel, "definition") and hasattr(kernel, "signature"):
        return _ours(kernel)
    if all(hasattr(kernel, name) for name in ("src", "helpers", "metal_parameters", "input_names", "result_names")):
        return _apples(kernel)
    expected(TypeError, "lint", "a MetalKernel, a TorchMetalKernel or KernelParts", type(kernel).__name__)


def _ours(kernel: Any) -> KernelParts:
    signature = kernel.signature
    return KernelParts(
        kernel.name,
        tuple(i.name for i in signature.inputs),
        signature.outputs,
        kernel.definition.source,
        kernel.definition.helpers,
        tuple(i.name for i in signature.inputs if i.name not in signature.tensors),
        tuple((p.name, p.type, p.attribute) for p in signature.thread_parameters),
        dict(signature.templates),
        tuple(signature.constants),
        signature.in_place,
    )


def _apples(kernel: Any) -> KernelParts:
    scalars = tuple(kernel._scalar_input_types)
    safe = getattr(kernel, "pastes_safely", False)
    return KernelParts(
        kernel.name,
        tuple(kernel.input_names),
        tuple(kernel.result_names),
        kernel.src,
        kernel.helpers,
        scalars,
        tuple((p.name, p.dtype, p.attr) for p in kernel.metal_parameters),
        dict(kernel.dtype_templates),
        # With scalars Apple's class wraps the body into lines of its own, to declare them.
        own_lines=safe or bool(scalars),
        own_namespace=safe,
        replaced=True,
    )
