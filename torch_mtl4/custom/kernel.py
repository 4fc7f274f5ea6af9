"""torch_mtl4.metal_kernel: a Metal kernel of the user's own as a torch op."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_mtl4.custom import registration
from torch_mtl4.custom.autograd import BY_REFERENCE
from torch_mtl4.custom.definition import Definition
from torch_mtl4.custom.launch import Launch, Launcher, Result
from torch_mtl4.custom.signature import SIZES, TENSOR, signature_of
from torch_mtl4.custom.source import HANDLE, Operand, Specialization, literal
from torch_mtl4.ops._errors import expected

if TYPE_CHECKING:
    from torch_mtl4 import msl
    from torch_mtl4.custom.check import CheckReport

_SPECIALIZATIONS = 256  # texts that a kernel remembers


class MetalKernel:
    """A Metal kernel of the user's own, made by `torch_mtl4.metal_kernel`, which documents the arguments.

    Attributes:
        name, signature, definition: what it is called, its parameters, and all that it was made of.
        op: the torch op, torch.ops.torch_mtl4_custom.<name>.default.
        reference: the same in PyTorch.
        backward: None, "reference", or a function.
        cpu: "reference" or "msl": how it runs on CPU tensors. May be set.
        launcher: computes grids, and shapes and dtypes of results.
    """

    def __init__(self, definition: Definition):
        d = definition
        self.definition = d
        self.signature = signature_of(
            d.name, d.inputs, d.outputs, d.reference, d.thread_parameters, d.templates, d.constants, d.in_place
        )
        self.name = d.name
        self.reference = d.reference
        self.launcher = Launcher(self.signature, d.reference, d.grid, d.threadgroup, d.output_shapes, d.output_dtypes)
        self.backward = _check_backward(self.name, d.backward, self.signature.in_place)
        self._cpu = registration.check_cpu(self.name, d.cpu)
        self._specialization = functools.lru_cache(_SPECIALIZATIONS)(self._make_specialization)
        self.op = registration.register(self)

    def __call__(self, *args, **keywords) -> Any:
        """Runs the kernel; returns a tensor, a tuple of several, or None where there is no output."""
        values = self.signature.bind(args, keywords)
        if not torch.compiler.is_dynamo_compiling():
            registration.check_registered(self)
            self.signature.check(values)
        return self.op(*values)

    @property
    def cpu(self) -> str:
        return self._cpu

    @cpu.setter
    def cpu(self, how: str) -> None:
        self._cpu = registration.check_cpu(self.name, how)

    def source(self, *args, form: str = HANDLE, **keywords) -> str:
        """The whole MSL text for such inputs.

        Args:
            args, keywords: the inputs; of tensors only rank and dtype matter, fake ones will do.
            form: "handle", with tensors as arguments (Core AI, the MSL runner), or "inline", with buffers (MPS).
        """
        values = self._checked(args, keywords)
        return self.specialize(values).text(form)

    def launch(self, *args, **keywords) -> Launch:
        """The grid and the threadgroup of a call, in threads along x, y and z; symbolic for symbolic sizes."""
        values = self._checked(args, keywords)
        some = next(v for v in values if isinstance(v, Tensor))
        results = [some.new_empty(r.shape, dtype=r.dtype, device="meta") for r in self.launcher.results(values)]
        named = dict(zip((i.name for i in self.signature.inputs), values, strict=True))
        return self.launcher.launch(named | dict(zip(self.signature.outputs, results, strict=True)))

    def check(self, *args, **keywords) -> "CheckReport":
        """Runs the kernel watched, and compares it with its reference; `torch_mtl4.custom.check.check` documents it."""
        from torch_mtl4.custom.check import check

        return check(self, *args, **keywords)

    def cost(self, *args, **keywords) -> "msl.Cost":
        """Counts what the kernel does for these inputs, by the rules of torch_mtl4/msl/cost.py."""
        from torch_mtl4.custom.check import cost

        return cost(self, *args, **keywords)

    def remove(self) -> None:
        """Frees the name. The kernel cannot be called any more."""
        registration.remove(self)

    def specialize(self, values: Sequence, results: Sequence[Result] | None = None) -> Specialization:
        """The text for the values of all inputs, in their order, and for what they result in (None: the launcher says).

        Ranks and dtypes of tensors matter, and the values of scalars. Specializations are remembered.
        """
        results = self.launcher.results(values) if results is None else results
        operands, scalars = [], []
        for i, value in zip(self.signature.inputs, values, strict=True):
            if i.kind == TENSOR:
                operands.append(Operand(i.name, value.dim(), value.dtype))
            elif i.kind != SIZES:
                # As text: of numbers 0.0, -0.0 and False are equal.
                scalars.append((i.kind, i.name, literal(float(value) if i.kind == "float" else value)))
        operands += [Operand(n, len(r.shape), r.dtype) for n, r in zip(self.signature.outputs, results, strict=True)]
        return self._specialization(tuple(operands), tuple(scalars))

    def _make_specialization(self, operands: tuple, scalars: tuple) -> Specialization:
        return Specialization(self.signature, self.definition.source, self.definition.helpers, operands, scalars)

    def _checked(self, args: Sequence, keywords: Mapping[str, Any]) -> tuple:
        values = self.signature.bind(args, keywords)
        self.signature.check(values)
        return values

    # A model is copied and saved with its kernels: those of this process are one, and elsewhere the name finds it.
    def __copy__(self) -> "MetalKernel":
        return self

    def __deepcopy__(self, memo: dict) -> "MetalKernel":
        return self

    def __reduce__(self) -> tuple:
        return registration.find, (self.name,)

    def __repr__(self) -> str:
        return f"MetalKernel({self.signature.schema()})"


def _check_backward(op: str, backward: str | Callable | None, in_place: Sequence[str]) -> str | Callable | None:
    if backward is None:
        return None
    if backward != BY_REFERENCE and not callable(backward):
        expected(TypeError, op, f"backward None, {BY_REFERENCE!r} or a function", repr(backward))
    if in_place:
        expected(NotImplementedError, op, "no backward where inputs are written in place", "one")
    return backward


def metal_kernel(
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    source: str,
    reference: Callable,
    *,
    grid: Sequence[int] | Callable,
    threadgroup: Sequence[int] | Callable,
    thread_parameters: Mapping[str, str],
    output_shapes: Callable | None = None,
    output_dtypes: Sequence[torch.dtype | str] | None = None,
    helpers: str = "",
    templates: Mapping[str, str] | None = None,
    constants: Mapping[str, bool | int | float] | None = None,
    backward: str | Callable | None = None,
    in_place: Sequence[str] = (),
    cpu: str = "reference",
) -> MetalKernel:
    """Makes a torch op of the body of a Metal kernel and of its reference in PyTorch.

        def scale_add(x: Tensor, y: Tensor, alpha: float) -> Tensor:
            return x + alpha * y

        kernel = torch_mtl4.metal_kernel(
            "scale_add", ["x", "y", "alpha"], ["out"], "out[i] = x[i] + alpha * y[i];", scale_add,
            grid=lambda x: (x.shape[0],), threadgroup=(256,), thread_parameters={"i": "uint thread_position_in_grid"},
        )
        kernel(torch.ones(5), torch.ones(5), 2.0)

    On MPS tensors the body runs on the GPU, on torch's stream; on CPU tensors the reference does, or the body in the
    MSL runner. Fake tensors, torch.compile and torch.export see one op, torch.ops.torch_mtl4_custom.<name>.

    In the body a tensor is a `tensor<device T, dextents<int, rank>, ...>` of its name: `x[i, j]`, `x.get_extent(0)`.
    Indices run innermost first: extent 0 is torch's last dimension. The innermost elements are neighbours in memory (a
    tensor of another layout is copied), other strides are those of the input; results are dense. Scalars are local
    variables whose value stands in the text: each value makes another kernel. Threadgroup memory is declared in the
    body, `threadgroup float partial[32];`.

    Args:
        name: of the op and the kernel function; an identifier that no other kernel of this process has.
        inputs: names of the reference's parameters in the body, in their order. What each is, its annotation says:
            torch.Tensor (float32, float16, bfloat16, or integers of 8 to 32 bits; at least one dimension), int, float
            or bool (a number in the text), or list[int] (sizes for grid and output_shapes, not seen by the body).
        outputs: names of the results in the body.
        source: the body of the kernel, lines of MSL 4.0. Errors name its lines, counted from 1.
        reference: the same in PyTorch, annotated; the truth to which `check` compares.
        grid: threads of the grid along x, y and z (one to three sizes), or a function of the inputs and results by name
            that computes them from shapes. The groups at the far edges are smaller where threadgroup does not divide.
        threadgroup: threads of a threadgroup, likewise; at most 1024.
        thread_parameters: what Metal tells each thread, by name: {"i": "uint thread_position_in_grid"}.
        output_shapes: a function of the inputs by name that gives the shape of every result. None: the reference runs
            under fake tensors to tell.
        output_dtypes: of every result a dtype, or the name of the input whose dtype it has. None: the reference tells.
        helpers: declarations before the kernel, in a namespace of its own.
        templates: names for the element types of tensors, in body and helpers: {"x": "T"}.
        constants: names for constants of compile time, in body and helpers: {"CAUSAL": True}.
        backward: a function of (gradients of the results, all inputs, results) that returns a gradient or None for each
            input that is a tensor; "reference" differentiates the reference; None: asking for a gradient is an error.
        in_place: inputs that the body writes to. They must not overlap in memory, nor with other inputs.
        cpu: what CPU tensors run, "reference" or "msl"; `torch_mtl4.custom.on_cpu` overrules it.

    Returns:
        The kernel, to be called with the inputs.

    Raises:
        TypeError: an argument, or an annotation of the reference, of the wrong type.
        ValueError: names that are not free, numbers that MSL has no literal for, a name that another kernel has.
        NotImplementedError: a backward of a kernel that works in place.
    """
    return MetalKernel(
        Definition(
            name=name,
            inputs=inputs,
            outputs=outputs,
            source=source,
            reference=reference,
            grid=grid,
            threadgroup=threadgroup,
            thread_parameters=thread_parameters,
            output_shapes=output_shapes,
            output_dtypes=output_dtypes,
            helpers=helpers,
            templates=templates or {},
            constants=constants or {},
            backward=backward,
            in_place=in_place,
            cpu=cpu,
        )
    )
