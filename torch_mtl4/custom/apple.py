"""TorchMetalKernel with the constructor and the call of Apple's class of that name, without its package.

What Apple's class does stays: the torch op `coreai_metal_kernels::<name>`, which its TorchConverter lowers, the names
of attributes, and errors. Beyond it, the body runs: on MPS tensors, on the CPU in the MSL runner where asked, under
`check` and `cost`; gradients are those of the reference; a kernel has the same name and text in every process.

Source: Apple, coreai-torch 0.4.3: the constructor, the call, and what `register_custom_kernels` asks of a kernel.
"""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from torch_mtl4.custom import registration
from torch_mtl4.custom.apple_call import BoundCall
from torch_mtl4.custom.apple_checks import check_annotations, check_call, check_names, check_templates
from torch_mtl4.custom.apple_op import make_op
from torch_mtl4.custom.definition import Definition
from torch_mtl4.custom.signature import Input, Signature, ThreadParameter
from torch_mtl4.ops._errors import expected

if TYPE_CHECKING:
    from torch_mtl4 import msl
    from torch_mtl4.custom.check import CheckReport

_CALLS = 256  # grids and shapes that a kernel remembers
_kernels: dict[str, "TorchMetalKernel"] = {}
_made: dict[str, int] = {}


def kernels() -> dict[str, "TorchMetalKernel"]:
    """The TorchMetalKernels of this process by name."""
    return dict(_kernels)


@dataclass(frozen=True)
class MetalParameter:
    """What Metal tells a thread of a TorchMetalKernel: `dtype name [[attr]]`, as Apple's class of this name."""

    name: str
    dtype: str
    attr: str


class TorchMetalKernel:
    """A Metal kernel by Apple's interface for Core AI, which also runs.

    Each call says its grid, its threadgroup and the shapes of its results. `torch_mtl4.metal_kernel` is the interface
    of this package, where a kernel computes them from its inputs.

    Args:
        name: of the kernel, and of the op coreai_metal_kernels::<name>.
        input_names: names of the inputs in the body, in the order of torch_defn's parameters.
        result_names: names of the results in the body.
        src: the body.
        torch_defn: the same in PyTorch; parameters annotated as torch.Tensor, int, float or bool, and the result as
            torch.Tensor, list[torch.Tensor] or a tuple of torch.Tensor.
        metal_params: what Metal tells each thread.
        helper_src: declarations before the kernel.
        template_dtypes: input -> placeholder, which is replaced in src and helper_src by the input's element type.

    Attributes:
        torch_custom_op: the torch op, to which kernels of other devices may be added.
        cpu: "reference" or "msl": how it runs on CPU tensors; `torch_mtl4.custom.on_cpu` overrules it. May be set.

    Raises:
        TypeError: a parameter or result of another type.
        ValueError: names that are empty, doubled or too few.
    """

    # For the linter: the body is pasted on lines of its own, and the helpers into a namespace.
    pastes_safely = True
    backward = "reference"

    def __init__(
        self,
        name: str,
        input_names: list[str],
        result_names: list[str],
        src: str,
        torch_defn: Callable[..., Any],
        metal_params: "list[MetalParameter] | None" = None,
        helper_src: str | None = None,
        template_dtypes: dict[str, str] | None = None,
    ):
        check_names(name, input_names, result_names)
        kinds, self.returns = check_annotations(name, input_names, result_names, torch_defn)
        check_templates(input_names, template_dtypes or {})
        self.name = name
        self.input_names, self.result_names = list(input_names), list(result_names)
        self.src, self.helpers = src, helper_src or ""
        self.reference = torch_defn
        self.metal_parameters = list(metal_params or [])
        self.dtype_templates = dict(template_dtypes or {})
        self.signature = Signature(
            name,
            tuple(Input(n, kind) for n, kind in zip(input_names, kinds, strict=True)),
            tuple(result_names),
            tuple(ThreadParameter(p.name, p.dtype, p.attr) for p in self.metal_parameters),
        )
        self._scalar_input_types = {
            i.name: {"int": int, "float": float, "bool": bool}[i.kind]
            for i in self.signature.inputs
            if i.name in self.signature.scalars
        }
        self._scalar_values_for_call: dict[str, Any] = {}
        self.kernel_cache: dict = {}
        self._cpu = registration.REFERENCE
        self._bound = functools.lru_cache(_CALLS)(functools.partial(BoundCall, self))
        self._take_name()
        self.torch_custom_op = make_op(self)

    @property
    def cpu(self) -> str:
        return self._cpu

    @cpu.setter
    def cpu(self, how: str) -> None:
        self._cpu = registration.check_cpu(self.name, how)

    @property
    def result_shape_params(self) -> list[str]:
        """The op's parameters for the shapes of results."""
        return [f"result_shape_{name}" for name in self.result_names]

    def __call__(
        self,
        *args: Any,
        threads_per_grid: tuple[int, int, int],
        threads_per_thread_group: tuple[int, int, int],
        result_shapes: list[list[int]],
    ) -> Any:
        """Runs the kernel.

        Args:
            args: the inputs.
            threads_per_grid: threads along x, y and z.
            threads_per_thread_group: threads of a threadgroup along x, y and z.
            result_shapes: of each result.

        Raises:
            ValueError: not three sizes, negative ones, or not a shape for each result.
            RuntimeError: a kernel of the same name, but another one, was made since; it has the op now.
        """
        check_call(self.name, self.result_names, threads_per_grid, threads_per_thread_group, result_shapes)
        last = _kernels[self.name]
        if last is not self and last._definition != self._definition:
            raise RuntimeError(
                f"{self.name}: expected the last kernel that was made with this name, got an older, different one "
                f"(both have the op coreai_metal_kernels::{self.name}; give one another name)"
            )
        sizes = [torch.tensor(list(n), dtype=torch.uint32) for n in (threads_per_grid, threads_per_thread_group)]
        shapes = [torch.tensor(list(shape), dtype=torch.uint32) for shape in result_shapes]
        # Of an equal kernel that was made later, as when a cell of a notebook runs again: it has the op.
        return last.torch_custom_op(*args, *sizes, *shapes)

    def bind(
        self,
        *,
        threads_per_grid: Sequence[int],
        threads_per_thread_group: Sequence[int],
        result_shapes: Sequence[Sequence[int]],
    ) -> BoundCall:
        """The kernel with these sizes: what `source`, `check` and `cost` look at."""
        check_call(self.name, self.result_names, threads_per_grid, threads_per_thread_group, result_shapes)
        return self._bound(tuple(threads_per_grid), tuple(threads_per_thread_group), tuple(map(tuple, result_shapes)))

    def check(self, *args: Any, **keywords: Any) -> "CheckReport":
        """Runs the body watched, and compares it with torch_defn.

        Args:
            args, keywords: as for a call; and the options of `torch_mtl4.custom.check.check`.
        """
        from torch_mtl4.custom.check import check

        call, options = self._split(keywords)
        return check(call, *args, **options)

    def cost(self, *args: Any, **keywords: Any) -> "msl.Cost":
        """Counts what a call with these arguments does, by the rules of torch_mtl4/msl/cost.py."""
        from torch_mtl4.custom.check import cost

        call, options = self._split(keywords)
        return cost(call, *args, **options)

    def source(self, *args: Any, **keywords: Any) -> str:
        """The whole MSL text of a call with these arguments, as the MSL runner compiles it."""
        call, options = self._split(keywords)
        return call.source(*args, **options)

    def _split(self, keywords: Mapping[str, Any]) -> tuple[BoundCall, dict[str, Any]]:
        sizes = ("threads_per_grid", "threads_per_thread_group", "result_shapes")
        missing = [name for name in sizes if name not in keywords]
        if missing:
            expected(TypeError, self.name, f"a keyword {missing[0]}", "none")
        return self.bind(**{n: keywords[n] for n in sizes}), {n: v for n, v in keywords.items() if n not in sizes}

    def _take_name(self) -> None:
        self._definition = Definition(
            self.name, self.input_names, self.result_names, self.src, self.reference, (), (),
            {p.name: f"{p.dtype} {p.attr}" for p in self.metal_parameters}, None, None, self.helpers,
            self.dtype_templates, {}, None, (), "",
        )  # fmt: skip
        other = _kernels.get(self.name)
        if other is not None and other._definition != self._definition:
            warnings.warn(f"{self.name}: the TorchMetalKernel that had this name raises from now on", stacklevel=3)
        _made[self.name] = self.generation = _made.get(self.name, -1) + 1
        _kernels[self.name] = self

    def _construct_kernel_op(self, input_values: list[Any], result_types: list[Any]) -> list[Any]:
        """For Apple's converter, while it lowers a call: the operation in Core AI's IR."""
        from torch_mtl4.custom.apple_lowering import construct

        return construct(self, self._scalar_values_for_call, input_values, result_types)

    def __repr__(self) -> str:
        return f"TorchMetalKernel({self.signature.schema()})"
