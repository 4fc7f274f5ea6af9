"""The twin of an asset: the saved program with every kernel replaced by its reference, run where there is no GPU.

Nothing is taken from the model: operands, their order, results, sizes and grids are those of the file. What the file
would give each kernel, and what the reference makes of it, can be watched.
"""

import asyncio
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import coreai_torch
import ml_dtypes
import numpy as np
import torch
from coreai.authoring import AIProgram
from coreai.runtime import NDArray
from torch import Tensor, nn

from torch_mtl4.export.coreai._apple import (
    ATEN_LOWERINGS,
    ArrayAttr,
    DictAttr,
    FunctionType,
    InsertionPoint,
    Location,
    Operation,
    RankedTensorType,
    ShapedType,
    StringAttr,
    TypeAttr,
    get_target,
    ir,
    preprocess_graph,
    tensor_type,
)
from torch_mtl4.export.coreai.asset import KERNEL, graphs_of, load, operations_of, sizes_of

DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "si8": torch.int8,
    "ui8": torch.uint8,
    "si16": torch.int16,
    "ui16": torch.uint16,
    "si32": torch.int32,
    "ui32": torch.uint32,
    "i1": torch.bool,
}
NARROWED = {torch.int64: torch.int32, torch.float64: torch.float32}
# Operations that only say where a tensor lies, or that one of its sizes is known.
_ZERO = "mtl4_zero"
_TRANSPARENT = ("coreaix.copy_with_constraints", "coreai.cast")


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


class TwinError(RuntimeError):
    """A kernel of the asset and its reference do not fit together."""


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
        lowered = _Lowered()
        for index, op in enumerate(list(operations_of(graph, KERNEL))):
            name = op.attributes["kernel_name"].value
            if name not in references:
                raise TwinError(f"{name}: expected a reference of each kernel of the asset, got none for this one")
            inputs_of, launch = _split(op)
            with InsertionPoint(op):
                results = lowered.inline(name, references[name], inputs_of, known.get(index))
                results = _checked(op, name, results)
            if watch(name):
                watched.append((name, inputs_of, launch, results))
            _replace(op, results)
        taps = [value for _, operands, launch, results in watched for value in (*operands, *launch, *results)]
        names = _add_outputs(graph, taps)
    outputs, states = _execute(program, inputs, states, entrypoint)
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
        calls, taps, zero = [], [], _add_zero(graph)
        for index, op in enumerate(list(operations_of(graph, KERNEL))):
            name, (operands, launch) = op.attributes["kernel_name"].value, _split(op)
            if watch(name):
                sizes = known.get(index) or [tuple(sizes_of(value)) for value in operands]
                stored = [getattr(value.owner, "name", "") == "coreai.constant" for value in operands]
                dtypes = [DTYPES[str(value.type.element_type)] for value in operands]
                calls.append((name, list(zip(sizes, stored, dtypes, strict=True)), len(launch)))
                taps += [value for value, kept in zip(operands, stored, strict=True) if kept] + launch
            with InsertionPoint(op):
                _replace(op, _zeros(op, zero))
        names = _add_outputs(graph, taps, only=True)
    outputs, _ = _execute(program, {**inputs, _ZERO: torch.zeros(1)}, states, entrypoint)
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
    operands_of = [_split(op)[0] for op in operations_of(graph, KERNEL)]
    asked = [i for i, operands in enumerate(operands_of) if any(None in sizes_of(value) for value in operands)]
    if not asked:
        return {}
    with program._module:
        values, zero = [], _add_zero(graph)
        for index, op in enumerate(list(operations_of(graph, KERNEL))):
            with InsertionPoint(op):
                if index in asked:
                    values += [ir.get_shape(value) for value in _split(op)[0]]
                _replace(op, _zeros(op, zero))
        names = _add_outputs(graph, values, only=True)
    outputs, _ = _execute(program, {**inputs, _ZERO: torch.zeros(1)}, states, entrypoint)
    shapes = iter([_ints(outputs[name]) for name in names])
    return {index: [next(shapes) for _ in operands_of[index]] for index in asked}


def _split(op) -> tuple[list, list]:
    """The tensors that a kernel is given, and its grid, threadgroup and result sizes."""
    operands = list(op.operands)
    count = len(operands) - 2 - len(list(op.results))
    return [_origin(value) for value in operands[:count]], operands[count:]


def _origin(value):
    while True:
        owner = value.owner
        if getattr(owner, "name", "") not in _TRANSPARENT:
            return value
        before = owner.operands[0]
        if str(before.type.element_type) != str(value.type.element_type):
            return value
        value = before


def _add_zero(graph):
    """A new input of a function that is 0: of a constant, the compiler would compute all that follows from it."""
    zero = graph.regions[0].blocks[0].add_argument(tensor_type([1], torch.float32), Location.unknown())
    named = DictAttr.get({"coreai.name": StringAttr.get(_ZERO)})
    graph.attributes["arg_attrs"] = ArrayAttr.get([*graph.attributes["arg_attrs"], named])
    return zero


def _zeros(op, zero) -> list:
    """Zeros of the sizes that a kernel announces, for each of its results."""
    _, (_, _, *shapes) = _split(op)
    zeros = []
    for result, shape in zip(op.results, shapes, strict=True):
        of = result.type
        one = ir.cast(zero, RankedTensorType.get([1], of.element_type))
        one = ir.reshape(one, np.ones(of.rank, np.uint32)) if of.rank != 1 else one
        zeros.append(_as_type_of(result, ir.broadcast_to(one, shape)))
    return zeros


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
    return [_as_type_of(result, value) for result, value in zip(op.results, results, strict=True)]


def _as_type_of(result, value):
    """A value with the sizes that are known of a kernel's result, so that whoever uses it finds what it expects."""
    if sizes_of(result) == sizes_of(value):
        return value

    unknown = ShapedType.get_dynamic_size()
    of = RankedTensorType.get([unknown if s is None else s for s in sizes_of(result)], value.type.element_type)
    return ir.cast(value, of)


def _replace(op, values: Iterable) -> None:
    for result, value in zip(list(op.results), values, strict=True):
        for use in list(result.uses):
            if use.owner.name == "coreaix.copy_discarding_constraints":
                use.owner.results[0].replace_all_uses_with(value)
                use.owner.erase()
        result.replace_all_uses_with(value)
    op.erase()


def _add_outputs(graph, values: Sequence, only: bool = False) -> list[str]:
    """Makes values outputs of a function, and returns their names; with `only` in place of the outputs that it has."""
    block = graph.regions[0].blocks[0]
    end = list(block.operations)[-1].operation
    attributes = list(graph.attributes["res_attrs"]) if "res_attrs" in graph.attributes else []
    old = list(end.operands)
    kept = [i for i, value in enumerate(old) if not only or "token" in str(value.type)]
    names = [f"mtl4_watched_{i}" for i in range(len(values))]
    results = [*(old[i] for i in kept), *values]
    with InsertionPoint(end):
        Operation.create("coreai.output", operands=results, loc=Location.unknown())
    end.erase()
    types = FunctionType.get([argument.type for argument in block.arguments], [value.type for value in results])
    graph.attributes["function_type"] = TypeAttr.get(types)
    named = [DictAttr.get({"coreai.name": StringAttr.get(name)}) for name in names]
    graph.attributes["res_attrs"] = ArrayAttr.get([*(attributes[i] for i in kept), *named])
    return names


class _Lowered:
    """References lowered to IR; exported once for each set of sizes and dtypes."""

    def __init__(self):
        self._exported = {}

    def inline(self, name: str, reference: Callable, values: Sequence, sizes: Sequence | None) -> list:
        """The results of reference(*values), computed at the current insertion point."""
        sizes = [tuple(sizes_of(value)) for value in values] if sizes is None else sizes
        dtypes = [str(value.type.element_type) for value in values]
        key = (name, tuple(sizes), tuple(dtypes))
        if key not in self._exported:
            fakes = tuple(torch.zeros(s, dtype=DTYPES[d]) for s, d in zip(sizes, dtypes, strict=True))
            self._exported[key] = _exported(reference, fakes)
        program, graph = self._exported[key]
        values = iter([_of_sizes(value, size) for value, size in zip(values, sizes, strict=True)])
        constants = {
            spec.arg.name: program.constants[spec.target]
            for spec in program.graph_signature.input_specs
            if spec.kind.name == "CONSTANT_TENSOR"
        }
        known = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                constant = constants.get(node.name)
                known[node.name] = next(values) if constant is None else ir.constant(to_numpy(constant))
            elif node.op == "call_function":
                known.update(_lower(known, node))
            elif node.op == "output":
                return [known[value.name] for value in node.args[0]]
        raise AssertionError("a graph without output")


def _of_sizes(value, sizes: Sequence[int]):
    if list(sizes) == sizes_of(value):
        return value
    return ir.reshape(value, ir.constant(np.asarray(sizes, np.uint32)))


def _lower(known: dict, node) -> dict:
    target = get_target(node)
    if target not in ATEN_LOWERINGS:
        raise TwinError(f"expected references of operations that Core AI knows, got {node.target}")
    with Location.unknown():
        results = ATEN_LOWERINGS[target](known, node, Location.unknown())
    if isinstance(results, (list, tuple)) or type(results).__name__ == "OpResultList":
        results = list(results)
    else:
        results = [results]
    return {node.name if len(results) == 1 else f"{node.name}#{i}": value for i, value in enumerate(results)}


def _exported(reference: Callable, examples: tuple[Tensor, ...]):
    class Reference(nn.Module):
        def forward(self, *operands):
            results = reference(*operands)
            # Core AI's functions may not return what they were given.
            return results if isinstance(results, (tuple, list)) else (results,)

    reference(*examples)  # tables that it keeps are made now, of real tensors
    program = torch.export.export(Reference(), examples, strict=False)
    program = program.run_decompositions(coreai_torch.get_decomp_table())
    return program, preprocess_graph(program.graph_module).graph


def _execute(program: AIProgram, inputs: Mapping[str, Tensor], states: Mapping[str, Tensor] | None, entrypoint: str):
    async def call(asset):
        async with asset.executable() as model:
            function = model.load_function(entrypoint)
            results = await function(given, held or None)
            return {name: to_tensor(value.numpy()) for name, value in results.items()}

    given = {name: NDArray(to_numpy(value)) for name, value in inputs.items()}
    held = {name: NDArray(to_numpy(value).copy()) for name, value in (states or {}).items()}
    with tempfile.TemporaryDirectory() as folder:
        outputs = asyncio.run(call(program.save_asset(Path(folder) / "twin.aimodel")))
    return outputs, {name: to_tensor(value.numpy()) for name, value in held.items()}


def to_numpy(tensor: Tensor) -> np.ndarray:
    """A tensor as Core AI takes it: dense, 64-bit types as the 32-bit ones that stand for them in an asset."""
    tensor = tensor.detach().cpu()
    tensor = tensor.to(NARROWED.get(tensor.dtype, tensor.dtype)).contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def to_tensor(array: np.ndarray) -> Tensor:
    """A copy of an array as a tensor."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _ints(values: Tensor) -> tuple[int, ...]:
    return tuple(int(v) for v in values.reshape(math.prod(values.shape)).tolist())
