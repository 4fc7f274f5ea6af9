"""Rules of the calls of kernels in a graph."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from torch_mtl4.custom.launch import MAX_GROUP
from torch_mtl4.custom.lint import graphs
from torch_mtl4.custom.lint.findings import Finding, finding
from torch_mtl4.custom.lint.parts import KernelParts
from torch_mtl4.custom.lint.signature_rules import extents_of, indices_of
from torch_mtl4.custom.lint.texts import Text
from torch_mtl4.custom.signature import MSL_TYPES

_MAX_GRID = 2**31  # what is above was negative before it became an unsigned number
_INT32 = range(-(2**31), 2**31)
_MANY = 8
_CUT = {torch.int64: "int32", torch.float64: "float32", torch.uint64: "uint32"}


@dataclass
class Call:
    """A call of a kernel in a graph.

    Attributes:
        inputs: arguments by the names of the kernel's inputs: nodes or numbers.
        results: fake tensors by the names of its outputs.
        grid, threadgroup, shapes: sizes; None where they could not be followed.
        problem: why the kernel refuses to tell them.
    """

    parts: KernelParts
    node: fx.Node
    inputs: Mapping[str, Any]
    results: Mapping[str, Tensor]
    grid: Sequence | None = None
    threadgroup: Sequence | None = None
    shapes: Sequence[Sequence | None] = ()
    problem: str | None = None
    tensors: dict[str, Tensor] = field(init=False)

    def __post_init__(self):
        values = {name: graphs.value_of(argument) for name, argument in self.inputs.items()}
        self.tensors = {n: v for n, v in values.items() if isinstance(v, Tensor) and n not in self.parts.scalars}


def call_findings(call: Call) -> Iterator[Finding]:
    for rule in (_dtypes, _ranks, _scalars, _transposes, _sizes, _launch, _shapes, _strides, _in_place):
        for name, message in rule(call):
            yield finding(name, call.parts.name, message, f"call {call.node.name}")


def many_texts(calls: Sequence[Call]) -> Iterator[Finding]:
    values: dict[str, dict[str, set]] = {}
    for call in calls:
        for name in call.parts.scalars:
            if not isinstance(value := call.inputs.get(name), (fx.Node, list, tuple)):
                values.setdefault(call.parts.name, {}).setdefault(name, set()).add(repr(value))
    for kernel, scalars in values.items():
        for name, found in scalars.items():
            if len(found) > _MANY:
                message = (
                    f"{len(found)} values of {name} make as many kernels to compile: pass it in a tensor of one element"
                )
                yield finding("many-texts", kernel, message)


def _dtypes(call: Call):
    for name, tensor in (*call.tensors.items(), *call.results.items()):
        if tensor.dtype in _CUT:
            cut = _CUT[tensor.dtype]
            message = f"{name} is {_named(tensor.dtype)} and arrives as {cut}: convert it before, `.to(torch.{cut})`"
            yield "operand-dtype", message
        elif tensor.dtype not in MSL_TYPES:
            yield "operand-dtype", f"{name} is {_named(tensor.dtype)}, which is refused: pass its bytes as uint8"


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _ranks(call: Call):
    everything = {**call.tensors, **call.results}
    for name, tensor in everything.items():
        if tensor.dim() == 0:
            yield "zero-dim", f"{name} has no dimensions: make it one of one element, `x.reshape(1)`"
    body = Text(call.parts.body).tokens()
    names = tuple(everything)
    by_array = any(token.text == "array" for token in body)
    for name, dimension, _ in extents_of(names, body):
        if dimension >= (rank := everything[name].dim()) > 0:
            yield "rank", f"the body asks for extent {dimension} of {name}, which has {rank} dimensions here"
    for name, indices, line in indices_of(names, body):
        rank = everything[name].dim()
        if len(indices) != rank and rank and not (len(indices) == 1 and by_array):
            index = ", ".join(indices)
            yield (
                "rank",
                f"{name}[{index}] in line {line} has {len(indices)} indices; {name} has {rank} dimensions here",
            )


def _scalars(call: Call):
    for name in call.parts.scalars:
        value = graphs.value_of(call.inputs.get(name))
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            message = f"{name} is {value}, which is known when the graph runs: read sizes with get_extent in the body"
            yield "symbolic-scalar", message
        elif isinstance(value, int) and value not in _INT32:
            yield "scalar-value", f"{name} is {value}, more than an int of 32 bits holds"
        elif isinstance(value, float) and not abs(value) <= torch.finfo(torch.float32).max:
            what = "beyond float32" if math.isfinite(value) else "not finite"
            yield "scalar-value", f"{name} is {value}, {what}: handle this case in the body"


def _transposes(call: Call):
    for name, tensor in call.tensors.items():
        if tensor.dim() and (order := graphs.permutation_of(call.inputs[name])):
            message = f"{name} comes out of a transpose, {order}: let the kernel read the layout that is there"
            yield "transposed-operand", message


def _sizes(call: Call):
    for name, tensor in (*call.tensors.items(), *call.results.items()):
        if any(graphs.is_unbacked(n) for n in tensor.shape):
            message = (
                f"{name} is {_listed(tensor.shape)}, of sizes that depend on values: check them, torch._check(...)"
            )
            yield "unbacked-size", message
    varies = [name for name, t in call.results.items() if any(graphs.is_symbolic(n) for n in t.shape)]
    told = [*(call.grid or ()), *(n for shape in call.shapes for n in shape or ())]
    if varies and call.grid and told and not any(graphs.is_symbolic(n) for n in told):
        message = f"{varies[0]} varies in size, the grid is {_listed(call.grid)}: compute it from shapes"
        yield "fixed-grid", message


def _launch(call: Call):
    if call.problem:
        yield "grid-size", call.problem
    for what, sizes in (("grid", call.grid), ("threadgroup", call.threadgroup)):
        for n in sizes or ():
            least, most = graphs.bounds(n)
            if not graphs.is_symbolic(n) and least >= _MAX_GRID:
                yield "grid-size", f"the {what} is {_listed(sizes)}, of which {n} was {n - 2**32}: sizes are positive"
            elif most <= 0:
                yield "grid-size", f"the {what} is {_listed(sizes)}: sizes are positive"
            elif least <= 0:
                message = (
                    f"the {what} is {_listed(sizes)}, and {n} is 0 or less for some sizes: bound the size, or skip"
                )
                yield "grid-range", f"{message} the call"
    group = call.threadgroup
    if group and not any(graphs.is_symbolic(n) for n in group) and MAX_GROUP < math.prod(group) < _MAX_GRID:
        yield "grid-size", f"the threadgroup is {_listed(group)}, {math.prod(group)} threads: {MAX_GROUP} are the most"


def _shapes(call: Call):
    for (name, tensor), shape in zip(call.results.items(), call.shapes, strict=False):
        if shape is None:
            continue
        given, real = _listed(shape), _listed(tensor.shape)
        if len(shape) != tensor.dim() or any(map(graphs.surely_differ, shape, tensor.shape)):
            yield "result-shape", f"result_shapes has {given} for {name}, the reference gives {real}: make them equal"


def _strides(call: Call):
    for name, tensor in call.results.items():
        dense = 1
        for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
            if not graphs.is_one(size) and graphs.surely_differ(stride, dense):
                message = f"the reference gives {name} with strides {_listed(tensor.stride())}: return `.contiguous()`"
                yield "strided-result", message
                break
            dense = dense * size


def _in_place(call: Call):
    if call.parts.in_place:
        message = f"{', '.join(call.parts.in_place)} is written in place: return a result, and let the model assign it"
        yield "in-place", message


def _listed(sizes: Sequence) -> str:
    return f"[{', '.join(map(str, sizes))}]"
