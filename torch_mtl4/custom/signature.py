"""What a kernel takes and gives: its operands, scalars and thread parameters, and the dtypes that it may see."""

import inspect
import keyword
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin

import torch
from torch import Tensor

from torch_mtl4.custom.names import check_name, check_names
from torch_mtl4.ops import _checks
from torch_mtl4.ops._errors import expected

# Of each dtype that Core AI hands to a kernel as it is: its name in MSL.
MSL_TYPES = {
    torch.float32: "float",
    torch.float16: "half",
    torch.bfloat16: "bfloat",
    torch.int8: "int8_t",
    torch.int16: "int16_t",
    torch.int32: "int",
    torch.uint8: "uint8_t",
    torch.uint16: "uint16_t",
    torch.uint32: "uint",
}
_INSTEAD = {
    torch.int64: "int32, `x.to(torch.int32)`: kernels have no operands of 64 bits (Core AI would cut them in silence)",
    torch.uint64: "int32 or uint32, of which kernels have operands",
    torch.float64: "float32, `x.float()`: GPUs have no 64-bit floats (Core AI would round the values in silence)",
    torch.bool: "uint8, `x.to(torch.uint8)`: a kernel has no operands of bool",
    torch.complex64: "float32, `torch.view_as_real(x)`: a kernel has no complex operands",
}
_BYTES_INSTEAD = "uint8, `x.view(torch.uint8)`, decoded in the body: a kernel has no operands of this format"
_KNOWN = ", ".join(str(dtype).removeprefix("torch.") for dtype in MSL_TYPES)

MAX_RANK = 8  # of the MSL runner's tensors; Metal's have up to 16
MAX_PARAMETERS = 31  # inputs, results and thread parameters together, of a kernel in Core AI
_INT32 = range(-(2**31), 2**31)
_FLOAT32_MAX = torch.finfo(torch.float32).max

TENSOR, SIZES = "tensor", "sizes"
_KINDS = {Tensor: TENSOR, int: "int", float: "float", bool: "bool", list[int]: SIZES}
_SCHEMA_TYPES = {TENSOR: "Tensor", "int": "int", "float": "float", "bool": "bool", SIZES: "SymInt[]"}
NO_DEFAULT = inspect.Parameter.empty

UINTS = ("ushort", "uint", "ushort2", "uint2", "ushort3", "uint3")
THREAD_ATTRIBUTES = {
    "thread_position_in_grid": 3, "threads_per_grid": 3, "threadgroup_position_in_grid": 3,
    "threadgroups_per_grid": 3, "thread_position_in_threadgroup": 3, "threads_per_threadgroup": 3,
    "dispatch_threads_per_threadgroup": 3, "thread_index_in_threadgroup": 1, "thread_index_in_simdgroup": 1,
    "simdgroup_index_in_threadgroup": 1, "simdgroups_per_threadgroup": 1, "dispatch_simdgroups_per_threadgroup": 1,
    "threads_per_simdgroup": 1, "thread_execution_width": 1, "thread_index_in_quadgroup": 1,
    "quadgroup_index_in_threadgroup": 1, "quadgroups_per_threadgroup": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Input:
    """A parameter of the op: a tensor, a number that is written into the text, or sizes (for grid and shapes only)."""

    name: str
    kind: str
    default: Any = NO_DEFAULT

    @property
    def schema(self) -> str:
        """As the op's schema declares it, without what is mutated."""
        name = f"{self.name}_" if keyword.iskeyword(self.name) else self.name
        default = "" if self.default is NO_DEFAULT else f"={self.default!r}"
        return f"{_SCHEMA_TYPES[self.kind]} {name}{default}"


@dataclass(frozen=True)
class ThreadParameter:
    """A parameter that Metal fills in, such as `uint2 position [[thread_position_in_grid]]`."""

    name: str
    type: str
    attribute: str


@dataclass(frozen=True)
class Signature:
    """The parameters of one kernel. Names are those of the MSL text; inputs are in the order of the reference."""

    op: str
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    thread_parameters: tuple[ThreadParameter, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, bool | int | float] = field(default_factory=dict)
    in_place: tuple[str, ...] = ()

    @property
    def tensors(self) -> tuple[str, ...]:
        """The inputs that are tensors."""
        return tuple(i.name for i in self.inputs if i.kind == TENSOR)

    @property
    def scalars(self) -> tuple[str, ...]:
        """The inputs that are numbers in the text."""
        return tuple(i.name for i in self.inputs if i.kind not in (TENSOR, SIZES))

    def schema(self) -> str:
        """Of the torch op: `scale_add(Tensor x, Tensor y, float alpha) -> Tensor out`."""
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        arguments = [
            i.schema.replace("Tensor", f"Tensor({next(letters)}!)", 1) if i.name in self.in_place else i.schema
            for i in self.inputs
        ]
        results = [f"Tensor {Input(name, TENSOR).schema.split()[1]}" for name in self.outputs]
        returned = results[0] if len(results) == 1 else f"({', '.join(results)})"
        return f"{self.op}({', '.join(arguments)}) -> {returned}"

    def bind(self, args: Sequence, keywords: Mapping[str, Any]) -> tuple:
        """The values of all inputs in their order.

        Raises:
            TypeError: too many, one that is missing, or a keyword that is no input.
        """
        names = [i.name for i in self.inputs]
        if len(args) > len(names):
            expected(TypeError, self.op, f"at most {len(names)} inputs ({', '.join(names)})", len(args))
        values = list(args)
        for i in self.inputs[len(args) :]:
            if i.name not in keywords and i.default is NO_DEFAULT:
                expected(TypeError, self.op, f"an input {i.name}", "none")
            values.append(keywords.get(i.name, i.default))
        unknown = [name for name in keywords if name not in names[len(args) :]]
        if unknown:
            twice = " twice" if unknown[0] in names else ""
            expected(TypeError, self.op, f"keywords among {', '.join(names)}, each once", f"{unknown[0]!r}{twice}")
        return tuple(values)

    def complete(self, values: Sequence) -> tuple:
        """Values by position, with the defaults of those that were left out at the end."""
        return (*values, *(i.default for i in self.inputs[len(values) :]))

    def check(self, values: Sequence) -> None:
        """Raises if a kernel cannot take these values: their types, dtypes, ranks and devices."""
        first = None
        for i, value in zip(self.inputs, values, strict=True):
            if i.kind == TENSOR:
                check_operand(self.op, i.name, value)
                if i.name in self.in_place and value.is_neg():
                    got = "a view whose values are negated when they are read"
                    expected(
                        NotImplementedError, self.op, f"{i.name} as it lies in memory, to be written in place", got
                    )
                first = first or (i.name, value)
                _checks.same_device(self.op, i.name, value, first[0], first[1].device)
            elif i.kind == SIZES:
                check_sizes(self.op, i.name, value)
            else:
                check_scalar(self.op, i.name, i.kind, value)


def check_operand(op: str, name: str, value: Any) -> None:
    """Raises if a value is no tensor that a kernel can take or give as it is."""
    _checks.tensor(op, name, value)
    check_dtype(op, name, value.dtype)
    if value.dim() == 0:
        expected(
            ValueError, op, f"{name} of at least one dimension",
            "a 0-d tensor (Core AI would read its handle in place of its value; use `x.reshape(1)` or a scalar input)",
        )  # fmt: skip
    if value.dim() > MAX_RANK:
        expected(NotImplementedError, op, f"{name} of at most {MAX_RANK} dimensions", value.dim())


def check_dtype(op: str, name: str, dtype: torch.dtype) -> None:
    if dtype not in MSL_TYPES:
        instead = _INSTEAD.get(dtype, _BYTES_INSTEAD if dtype.itemsize == 1 else f"one of {_KNOWN}")
        expected(TypeError, op, f"{name} of dtype {instead}", dtype)


def check_scalar(op: str, name: str, kind: str, value: Any) -> None:
    """Raises if a number cannot stand in the text of a kernel."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        expected(
            NotImplementedError, op, f"{name} a number that is known when the text is made, since it stands in it",
            f"the symbolic {value} (read sizes with get_extent in the body, or declare the input as list[int])",
        )  # fmt: skip
    types = {"bool": (bool,), "int": (int,), "float": (int, float)}[kind]
    if not isinstance(value, types) or (kind != "bool" and isinstance(value, bool)):
        expected(TypeError, op, f"{name} of type {kind}", type(value).__name__)
    if kind == "int" and value not in _INT32:
        expected(ValueError, op, f"{name} an int of 32 bits, as MSL's are", value)
    if kind == "float" and not (math.isfinite(value) and abs(value) <= _FLOAT32_MAX):
        expected(ValueError, op, f"{name} finite in float32, to be written into the text of a kernel", value)


def check_sizes(op: str, name: str, value: Any) -> None:
    """Raises if a value is no sequence of whole numbers."""
    if not isinstance(value, (list, tuple)):
        expected(TypeError, op, f"{name} a list of sizes", type(value).__name__)
    for size in value:
        if not isinstance(size, (int, torch.SymInt)) or isinstance(size, bool):
            expected(TypeError, op, f"{name} of whole numbers", f"{type(size).__name__} in {list(value)}")


def signature_of(
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    reference: Callable,
    thread_parameters: Mapping[str, str],
    templates: Mapping[str, str],
    constants: Mapping[str, bool | int | float],
    in_place: Sequence[str],
) -> Signature:
    """The signature of a kernel, with everything checked that is known before a call."""
    check_name("metal_kernel", "name", name)
    taken: dict[str, str] = {}
    inputs = check_names(name, "inputs", inputs, taken)
    outputs = check_names(name, "outputs", outputs, taken)
    declared = _inputs_of(name, inputs, reference)
    tensors = [i.name for i in declared if i.kind == TENSOR]
    if not tensors:
        expected(ValueError, name, "at least one input that is a tensor", "none (it says where the kernel runs)")
    in_place = tuple(in_place)
    for each in in_place:
        if each not in tensors:
            expected(ValueError, name, f"in_place among the tensors {', '.join(tensors)}", repr(each))
    if len(set(in_place)) < len(in_place):
        expected(ValueError, name, "in_place with each name once", in_place)
    if not outputs and not in_place:
        expected(ValueError, name, "at least one output, or an input in_place", "none")
    _check_returns(name, outputs, reference)
    threads = _thread_parameters(name, thread_parameters, taken)
    for operand, alias in templates.items():
        if operand not in (*tensors, *outputs):
            expected(ValueError, name, f"templates of the tensors {', '.join((*tensors, *outputs))}", repr(operand))
        check_names(name, "templates", [alias], taken)
    check_names(name, "constants", constants, taken)
    for constant, value in constants.items():
        kind = "bool" if isinstance(value, bool) else "float" if isinstance(value, float) else "int"
        check_scalar(name, constant, kind, value)
    if (count := len(tensors) + len(outputs) + len(threads)) > MAX_PARAMETERS:
        expected(ValueError, name, f"at most {MAX_PARAMETERS} tensors and thread parameters", count)
    return Signature(name, declared, outputs, threads, dict(templates), dict(constants), in_place)


def _inputs_of(op: str, names: tuple[str, ...], reference: Callable) -> tuple[Input, ...]:
    if not callable(reference):
        expected(TypeError, op, "reference a function of the inputs in PyTorch", type(reference).__name__)
    parameters = list(inspect.signature(reference, eval_str=True).parameters.values())
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            expected(TypeError, op, "reference with parameters by position only", f"{parameter}")
    if len(parameters) != len(names):
        got = f"{len(parameters)} ({', '.join(p.name for p in parameters)})"
        expected(ValueError, op, f"reference with a parameter for each of {len(names)} inputs", got)
    declared = []
    for name, parameter in zip(names, parameters, strict=True):
        kind = _KINDS.get(parameter.annotation)
        if kind is None:
            got = "none" if parameter.annotation is NO_DEFAULT else parameter.annotation
            wanted = f"an annotation of reference's {parameter.name}: torch.Tensor, int, float, bool or list[int]"
            expected(TypeError, op, wanted, got)
        if parameter.default is not NO_DEFAULT:
            if kind in (TENSOR, SIZES):
                expected(TypeError, op, f"reference's {parameter.name} without a default", repr(parameter.default))
            check_scalar(op, name, kind, parameter.default)
        declared.append(Input(name, kind, parameter.default))
    return tuple(declared)


def _check_returns(op: str, outputs: tuple[str, ...], reference: Callable) -> None:
    annotation = inspect.signature(reference, eval_str=True).return_annotation
    if annotation is Tensor:
        count = 1
    elif annotation is None or annotation is type(None):
        count = 0
    elif get_origin(annotation) is tuple and all(a is Tensor for a in get_args(annotation)):
        count = len(get_args(annotation))
    elif annotation == list[Tensor]:
        return  # how many, a call shows
    else:
        got = "none" if annotation is NO_DEFAULT else annotation
        wanted = "reference annotated to return torch.Tensor, a tuple of them or None"
        expected(TypeError, op, wanted, got)
    if count != len(outputs):
        expected(ValueError, op, f"reference annotated to return {len(outputs)} tensors, one an output", count)


def _thread_parameters(op: str, given: Mapping[str, str], taken: dict[str, str]) -> tuple[ThreadParameter, ...]:
    found = []
    for name in check_names(op, "thread_parameters", given, taken):
        words = given[name].split() if isinstance(given[name], str) else ()
        if len(words) != 2 or words[0] not in UINTS or words[1] not in THREAD_ATTRIBUTES:
            wanted = f"thread_parameters[{name!r}] as 'uint thread_position_in_grid': one of {', '.join(UINTS)} and "
            expected(ValueError, op, wanted + f"one of {', '.join(THREAD_ATTRIBUTES)}", repr(given[name]))
        if words[0][-1].isdigit() and THREAD_ATTRIBUTES[words[1]] == 1:
            expected(ValueError, op, f"thread_parameters[{name!r}] a uint or ushort, as {words[1]} is", words[0])
        found.append(ThreadParameter(name, *words))
    return tuple(found)
