"""The twin of an asset: the saved program with every kernel replaced by its reference, run where there is no GPU.

Nothing is taken from the model: operands, their order, results, sizes and grids are those of the file. What the file
would give each kernel, and what the reference makes of it, can be watched.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from coreai.authoring import AIProgram
from torch import Tensor

from torch_mtl4.export.coreai._apple import InsertionPoint, ir
from torch_mtl4.export.coreai.asset import KERNEL, graphs_of, load, operations_of, sizes_of
from torch_mtl4.export.coreai.inline import DTYPES, Inliner, TwinError
from torch_mtl4.export.coreai.interpreter import execute
from torch_mtl4.export.coreai.ir_edits import ZERO, add_outputs, add_zero, as_type_of, replace, split, zeros

__all__ = ["KernelCall", "TwinError", "TwinRun", "draw_calls", "run_twin"]


@dataclass
class KernelCall:
    """One call of a kernel in a run of the twin.

    Attributes:
        name: of the kernel.
        operands: what the file hands over.
        grid, group: threads of the whole grid and of a threadgroup, x first.
        result_shapes: the sizes that the file announces to Metal.
        results: of the reference; empty if they were not asked for.
    """

    name: str
    operands: tuple[Tensor, ...]
    grid: tuple[int, ...]
    group: tuple[int, ...]
    result_shapes: tuple[tuple[int, ...], ...]
    results: tuple[Tensor, ...] = ()


@dataclass
class TwinRun:
    """What one run of the twin gave: outputs and states by name, and the watched calls."""

    outputs: dict[str, Tensor]
    states: dict[str, Tensor]
    calls: list[KernelCall] = field(default_factory=list)


def run_twin(
    asset: str | Path,
    references: Mapping[str, Callable],
    inputs: Mapping[str, Tensor],
    states: Mapping[str, Tensor] | None = None,
    *,
    entrypoint: str = "main",
    watch: Callable[[str], bool] = lambda name: True,
) -> TwinRun:
    """Runs an asset's program with its kernels replaced by references.

    Args:
        asset: path of the .aimodel.
        references: kernel name -> function of the operands in the kernel's order; returns a tensor or a tuple.
        inputs, states: by their names in the asset; states are not changed.
        entrypoint: the function to run.
        watch: whether to keep what goes into and out of the kernel of a name.

    Returns:
        A TwinRun.

    Raises:
        TwinError: a kernel without a reference, or one whose results have other dtypes, ranks or sizes.
    """
    known = _sizes_of_operands(asset, inputs, states, entrypoint)
    program = _load(asset, entrypoint)
    watched = []
    with program._module:
        graph = dict(graphs_of(program))[entrypoint]
        lowered = Inliner()
        for index, op in enumerate(list(operations_of(graph, KERNEL))):
            name = op.attributes["kernel_name"].value
            if name not in references:
                raise TwinError(f"{name}: expected a reference of each kernel of the asset, got none for this one")
            inputs_of, launch = split(op)
            with InsertionPoint(op):
                results = lowered.inline(name, references[name], inputs_of, known.get(index))
                results = _checked(op, name, results)
            if watch(name):
                watched.append((name, inputs_of, launch, results))
            replace(op, results)
        taps = [value for _, operands, launch, results in watched for value in (*operands, *launch, *results)]
        names = add_outputs(graph, taps)
    outputs, states = execute(program, inputs, states, entrypoint)
    values = iter([outputs.pop(name) for name in names])
    calls = []
    for name, operands, launch, results in watched:
        operands, (grid, group, *shapes) = [next(values) for _ in operands], [_ints(next(values)) for _ in launch]
        results = tuple(next(values) for _ in results)
        calls.append(KernelCall(name, tuple(operands), grid, group, tuple(shapes), results))
    return TwinRun(outputs, states, calls)


def draw_calls(
    asset: str | Path,
    inputs: Mapping[str, Tensor],
    states: Mapping[str, Tensor] | None = None,
    *,
    entrypoint: str = "main",
    watch: Callable[[str], bool] = lambda name: True,
) -> list[KernelCall]:
    """The kernel calls for these inputs without the run: grids and weights of the file, other operands drawn.

    Args: as of run_twin.
    """
    known = _sizes_of_operands(asset, inputs, states, entrypoint)
    program = _load(asset, entrypoint)
    with program._module:
        graph = dict(graphs_of(program))[entrypoint]
        calls, taps, zero = [], [], add_zero(graph)
        for index, op in enumerate(list(operations_of(graph, KERNEL))):
            name, (operands, launch) = op.attributes["kernel_name"].value, split(op)
            if watch(name):
                sizes = known.get(index) or [tuple(sizes_of(value)) for value in operands]
                stored = [getattr(value.owner, "name", "") == "coreai.constant" for value in operands]
                dtypes = [DTYPES[str(value.type.element_type)] for value in operands]
                calls.append((name, list(zip(sizes, stored, dtypes, strict=True)), len(launch)))
                taps += [value for value, kept in zip(operands, stored, strict=True) if kept] + launch
            with InsertionPoint(op):
                replace(op, zeros(op, zero))
        names = add_outputs(graph, taps, only=True)
    outputs, _ = execute(program, {**inputs, ZERO: torch.zeros(1)}, states, entrypoint)
    values = iter([outputs[name] for name in names])
    found, random = [], torch.Generator().manual_seed(0)
    for name, operands, count in calls:
        operands = tuple(next(values) if kept else _drawn(size, dtype, random) for size, kept, dtype in operands)
        grid, group, *shapes = [_ints(next(values)) for _ in range(count)]
        found.append(KernelCall(name, operands, grid, group, tuple(shapes)))
    return found


def _load(asset: str | Path, entrypoint: str) -> AIProgram:
    """The program of an asset without its other functions that call kernels, which would be compiled with this one."""
    program = load(asset)
    for name, graph in list(graphs_of(program)):
        if name != entrypoint and next(operations_of(graph, KERNEL), None) is not None:
            graph.erase()
    return program


def _drawn(size: Sequence[int], dtype: torch.dtype, random: torch.Generator) -> Tensor:
    if dtype.is_floating_point:
        return torch.randn(size, generator=random).to(dtype)
    # Finite numbers as e4m3 and as e8m0 alike.
    low, high = (96, 127) if dtype == torch.uint8 else (0, 2)
    return torch.randint(low, high, tuple(size), generator=random).to(dtype)


def _sizes_of_operands(asset, inputs, states, entrypoint) -> dict[int, list[tuple[int, ...]]]:
    """The sizes of the operands of each call that has an operand of unknown size: call -> sizes."""
    program = _load(asset, entrypoint)
    graph = dict(graphs_of(program))[entrypoint]
    operands_of = [split(op)[0] for op in operations_of(graph, KERNEL)]
    asked = [i for i, operands in enumerate(operands_of) if any(None in sizes_of(value) for value in operands)]
    if not asked:
        return {}
    with program._module:
        values, zero = [], add_zero(graph)
        for index, op in enumerate(list(operations_of(graph, KERNEL))):
            with InsertionPoint(op):
                if index in asked:
                    values += [ir.get_shape(value) for value in split(op)[0]]
                replace(op, zeros(op, zero))
        names = add_outputs(graph, values, only=True)
    outputs, _ = execute(program, {**inputs, ZERO: torch.zeros(1)}, states, entrypoint)
    shapes = iter([_ints(outputs[name]) for name in names])
    return {index: [next(shapes) for _ in operands_of[index]] for index in asked}


def _checked(op, name: str, results: Sequence) -> list:
    if len(results) != len(list(op.results)):
        raise TwinError(f"{name}: expected {len(list(op.results))} results of its reference, got {len(results)}")
    for i, (result, value) in enumerate(zip(op.results, results, strict=True)):
        of_file, of_reference = (str(v.type.element_type) for v in (result, value))
        want, got = sizes_of(result), sizes_of(value)
        fits = len(want) == len(got) and all(w is None or g is None or w == g for w, g in zip(want, got, strict=True))
        if of_file != of_reference or not fits:
            raise TwinError(
                f"{name}: expected result {i} of its reference {of_file} {want} as in the asset, "
                f"got {of_reference} {got}"
            )
    return [as_type_of(result, value) for result, value in zip(op.results, results, strict=True)]


def _ints(values: Tensor) -> tuple[int, ...]:
    return tuple(int(v) for v in values.reshape(math.prod(values.shape)).tolist())
