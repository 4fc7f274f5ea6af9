"""What a call launches: the shapes and dtypes of its results, and its grid. Sizes may be symbolic."""

import functools
import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import SymInt, Tensor

from torch_mtl4.custom.signature import Signature, check_dtype, check_operand
from torch_mtl4.ops._errors import expected

MAX_GROUP = 1024  # threads of a threadgroup, on every GPU of Apple's
_MAX_GRID = 2**32 - 1
_REMEMBERED = 1024  # shapes of results that a reference told


class Launch(NamedTuple):
    """Threads of the grid and of a threadgroup, along x, y and z. Groups at the far edges may be smaller."""

    grid: tuple
    threadgroup: tuple


class Result(NamedTuple):
    shape: tuple
    dtype: torch.dtype


def called_by_name(op: str, what: str, function: Callable | None, names: Sequence[str]) -> Callable | None:
    """The function as one of a mapping from names to values, of which it is given those that it asks for."""
    if function is None:
        return None
    if not callable(function):
        expected(TypeError, op, f"{what} a function of the inputs by name", type(function).__name__)
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        wanted = None
    else:
        wanted = [p.name for p in parameters]
        unknown = [p.name for p in parameters if p.name not in names and p.default is p.empty]
        if unknown:
            expected(ValueError, op, f"{what} a function of some of {', '.join(names)}", f"one of {unknown[0]}")

    @functools.wraps(function)
    def call(values: Mapping[str, Any]):
        return function(**(values if wanted is None else {name: values[name] for name in wanted if name in values}))

    return call


class Launcher:
    """Computes launches and results from the values of a call.

    Args:
        grid, threadgroup: sizes, or functions of the inputs and results by name.
        output_shapes: a function of the inputs by name; None: the reference tells, under fake tensors.
        output_dtypes: of each output a dtype, or the name of the input whose dtype it has; None: the reference tells.
    """

    def __init__(
        self,
        signature: Signature,
        reference: Callable,
        grid: Sequence | Callable,
        threadgroup: Sequence | Callable,
        output_shapes: Callable | None,
        output_dtypes: Sequence | None,
    ):
        self._signature, self._reference = signature, reference
        inputs = [i.name for i in signature.inputs]
        self._grid = _sizes_or_function(signature.op, "grid", grid, [*inputs, *signature.outputs])
        self._threadgroup = _sizes_or_function(signature.op, "threadgroup", threadgroup, [*inputs, *signature.outputs])
        self._output_shapes = called_by_name(signature.op, "output_shapes", output_shapes, inputs)
        self._output_dtypes = _output_dtypes(signature, output_dtypes)
        self._told: OrderedDict[tuple, tuple[Result, ...]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def promises(self) -> bool:
        """Whether shapes are told by another function than the reference."""
        return self._output_shapes is not None

    def launch(self, values: Mapping[str, Any]) -> Launch:
        """The grid of a call, given its inputs and results by name.

        Raises:
            TypeError: sizes that are no whole numbers.
            ValueError: not one to three sizes, negative ones, or more threads than Metal has.
        """
        op = self._signature.op
        grid, threadgroup = self._grid(values), self._threadgroup(values)
        launch = Launch(_three(op, "grid", grid, 0), _three(op, "threadgroup", threadgroup, 1))
        group = launch.threadgroup
        if all(isinstance(n, int) for n in group) and group[0] * group[1] * group[2] > MAX_GROUP:
            expected(ValueError, op, f"threadgroup of at most {MAX_GROUP} threads", list(group))
        return launch

    def results(self, values: Sequence) -> tuple[Result, ...]:
        """Shapes and dtypes of the results for these inputs, which may be fake.

        Raises:
            TypeError, ValueError: what output_shapes or the reference gives is no result of a kernel.
            NotImplementedError: the reference cannot tell shapes without values.
        """
        if not self._signature.outputs:
            return ()
        op, names = self._signature.op, self._signature.outputs
        if self._output_shapes is None:
            return self._told_by_reference(values)
        shapes = self._output_shapes(dict(zip((i.name for i in self._signature.inputs), values, strict=True)))
        if not isinstance(shapes, Sequence) or len(shapes) != len(names):
            expected(ValueError, op, f"output_shapes to give {len(names)} shapes, one an output", shapes)
        shapes = [_shape(op, name, shape) for name, shape in zip(names, shapes, strict=True)]
        dtypes = self._output_dtypes(values) or [r.dtype for r in self._told_by_reference(values)]
        return tuple(Result(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True))

    def _told_by_reference(self, values: Sequence) -> tuple[Result, ...]:
        from torch._subclasses.fake_tensor import FakeTensor

        if any(isinstance(v, FakeTensor) for v in values):
            return self._results_of(self._run_fake(values, None))
        key = tuple(
            (tuple(v.shape), v.stride(), v.dtype) if isinstance(v, Tensor) else tuple(v) if isinstance(v, list) else v
            for v in values
        )
        with self._lock:
            if key in self._told:
                self._told.move_to_end(key)
                return self._told[key]
        from torch._subclasses.fake_tensor import FakeTensorMode

        results = self._results_of(self._run_fake(values, FakeTensorMode()))
        with self._lock:
            self._told[key] = results
            if len(self._told) > _REMEMBERED:
                self._told.popitem(last=False)
        return results

    def _run_fake(self, values: Sequence, mode) -> Any:
        from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

        def stand_in(i, value):
            if mode is not None and isinstance(value, Tensor):
                value = mode.from_tensor(value.detach())
            return value.clone() if i.name in self._signature.in_place else value

        try:
            with torch.no_grad():
                given = [stand_in(i, v) for i, v in zip(self._signature.inputs, values, strict=True)]
                with mode or nullcontext():
                    return self._reference(*given)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            expected(
                NotImplementedError, self._signature.op, "output_shapes, since the reference looks at values", error
            )

    def _results_of(self, given: Any) -> tuple[Result, ...]:
        tensors = as_results(self._signature, given)
        return tuple(Result(tuple(t.shape), t.dtype) for t in tensors)


def as_results(signature: Signature, given: Any, *, operands: bool = True) -> tuple[Tensor, ...]:
    """What the reference returned, as a tuple with a tensor for each output.

    Args:
        operands: whether a kernel could give them, too; float64 ones are no operands.

    Raises:
        TypeError, ValueError: another number of them, or tensors that a kernel cannot give.
    """
    if isinstance(given, Tensor):
        given = (given,)
    given = () if given is None else given
    if not isinstance(given, (tuple, list)):
        expected(TypeError, signature.op, "reference to return tensors", type(given).__name__)
    if len(given) != len(signature.outputs):
        names = ", ".join(signature.outputs) or "none"
        expected(
            ValueError, signature.op, f"reference to return {len(signature.outputs)} tensors ({names})", len(given)
        )
    for name, tensor in zip(signature.outputs, given, strict=True):
        if not isinstance(tensor, Tensor):
            expected(TypeError, signature.op, f"the reference's {name} a torch.Tensor", type(tensor).__name__)
        if operands:
            check_operand(signature.op, f"the reference's {name}", tensor)
    return tuple(given)


def _sizes_or_function(op: str, what: str, given: Any, names: Sequence[str]) -> Callable:
    if callable(given):
        return called_by_name(op, what, given, names)
    _three(op, what, given, 1)
    return lambda values: given


def _three(op: str, what: str, sizes: Any, least: int) -> tuple:
    """Sizes along x, y and z; those that are not given are 1."""
    if not isinstance(sizes, Sequence) or isinstance(sizes, str) or not 1 <= len(sizes) <= 3:
        expected(ValueError, op, f"{what} of one to three sizes", sizes)
    for n in sizes:
        if isinstance(n, SymInt):
            continue
        if not isinstance(n, int) or isinstance(n, bool):
            expected(TypeError, op, f"{what} of whole numbers", f"{type(n).__name__} in {list(sizes)}")
        if not least <= n <= _MAX_GRID:
            expected(ValueError, op, f"{what} of sizes from {least} to 2^32 - 1", list(sizes))
    return (*sizes, *(1,) * (3 - len(sizes)))


def _shape(op: str, name: str, shape: Any) -> tuple:
    if not isinstance(shape, Sequence) or isinstance(shape, str) or not shape:
        expected(ValueError, op, f"output_shapes to give {name} a shape of at least one dimension", shape)
    for n in shape:
        if isinstance(n, SymInt):
            continue
        if not isinstance(n, int) or isinstance(n, bool):
            expected(
                TypeError, op, f"output_shapes to give {name} whole numbers", f"{type(n).__name__} in {list(shape)}"
            )
        if n < 0:
            expected(ValueError, op, f"output_shapes to give {name} sizes of at least 0", list(shape))
    return tuple(shape)


def _output_dtypes(signature: Signature, given: Sequence | None) -> Callable[[Sequence], list | None]:
    if given is None:
        return lambda values: None
    op, names = signature.op, signature.outputs
    if isinstance(given, (str, torch.dtype)) or len(given) != len(names):
        expected(ValueError, op, f"output_dtypes with {len(names)} dtypes, one an output", given)
    positions = {i.name: at for at, i in enumerate(signature.inputs)}
    for name, each in zip(names, given, strict=True):
        if isinstance(each, torch.dtype):
            check_dtype(op, f"output {name}", each)
        elif each not in signature.tensors:
            wanted = f"output_dtypes of dtypes or of names among {', '.join(signature.tensors)}"
            expected(ValueError, op, wanted, repr(each))
    return lambda values: [e if isinstance(e, torch.dtype) else values[positions[e]].dtype for e in given]
