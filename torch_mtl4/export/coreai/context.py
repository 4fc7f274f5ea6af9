"""What one conversion to Core AI emits: kernels, each with all that is needed to run it elsewhere."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import SymInt, Tensor

from torch_mtl4.ops._errors import expected

# The GPU and system that kernels are chosen for: Core AI assets need macOS 27.
CAPS = "g17s macos27 tensor_ops scale_planes"

Shape = tuple[int | SymInt, ...]


class Slot(NamedTuple):
    """A tensor at the edge of a kernel."""

    name: str
    dtype: torch.dtype
    rank: int


class Launch(NamedTuple):
    """What one call of a kernel launches, in threads along x, y and z, and the shapes of its results."""

    grid: Shape
    threadgroup: Shape
    results: tuple[Shape, ...]


@dataclass(frozen=True)
class EmittedKernel:
    """A kernel of an asset. One text serves all sizes, so calls of other shapes may share it.

    Attributes:
        op: the torch op that it belongs to, such as "mxfp8_linear".
        name: of the kernel function; it holds a hash of the text.
        text: the whole MSL source.
        operands, results: the tensors at its edge, in the order of its buffers.
        reference: the same in PyTorch, of tensors as they stand at the edge; options of the op are bound. Made of
            operations that Core AI has a lowering for.
        launch: from the shapes of the operands, which may be symbolic, to what is launched.
    """

    op: str
    name: str
    text: str
    operands: tuple[Slot, ...]
    results: tuple[Slot, ...]
    reference: Callable[..., Tensor | tuple[Tensor, ...]]
    launch: Callable[[Sequence[Shape]], Launch]

    @property
    def n_inputs(self) -> int:
        return len(self.operands)


class Call(NamedTuple):
    """A place of the graph where a kernel is called: the node that it stands for, and the operands' shapes."""

    kernel: EmittedKernel
    node: str
    shapes: tuple[Shape, ...]


@dataclass
class Emission:
    """The kernels of one conversion.

    Attributes:
        caps: of the GPU that kernels are chosen for, as csrc/plan/device_caps.h reads them.
        kernels: by name.
        calls: in the order of the graph.
    """

    caps: str = CAPS
    kernels: dict[str, EmittedKernel] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    def add(self, kernel: EmittedKernel, node: str, shapes: Sequence[Shape]) -> EmittedKernel:
        """Records a call. Kernels of one text are one: the first of them is kept, and returned."""
        kept = self.kernels.setdefault(kernel.name, kernel)
        if kept.text != kernel.text:
            expected(ValueError, "export", f"one kernel of the name {kernel.name}", "two of different texts")
        self.calls.append(Call(kept, node, tuple(tuple(shape) for shape in shapes)))
        return kept
