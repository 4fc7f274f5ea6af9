"""From a prepared model to a Core AI program: torch.export, decompositions, Apple's converter with our lowerings."""

import contextlib
import inspect
import io
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import NamedTuple

import coreai_torch
import torch
from coreai.authoring import AIProgram
from coreai_torch import TorchConverter
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from torch_mtl4._calls import count_stand_ins
from torch_mtl4.export.coreai._apple import ATEN_LOWERINGS
from torch_mtl4.export.coreai.asset import rename_kernels
from torch_mtl4.export.coreai.attention_calls import our_attention
from torch_mtl4.export.coreai.context import Emission
from torch_mtl4.export.coreai.decompositions import ours
from torch_mtl4.export.coreai.layouts import move_transposes
from torch_mtl4.export.coreai.masks import drop_masks
from torch_mtl4.export.coreai.ops import register

# The converter drops them.
_ASSERTIONS = {
    torch.ops.aten._assert_async.msg,
    torch.ops.aten._assert_scalar.default,
    torch.ops.aten._assert_tensor_metadata.default,
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
}


class _Results:
    """Names of the tensors that a model returned, and of what else it returned with its type."""

    kept: Sequence[str] = ()
    dropped: Sequence[str] = ()


class TensorsOf(nn.Module):
    """A model whose forward returns only the tensors of what the model returns, in their order.

    Attributes:
        attention: whether F.scaled_dot_product_attention is ours in it.
        fixed: arguments by name that are no tensors.
        results: what the latest call of forward returned.
    """

    def __init__(self, model: nn.Module, attention: bool, fixed: Mapping[str, object]):
        super().__init__()
        self.model = model
        self.attention = attention
        self.fixed = fixed
        self.results = _Results()  # an object: torch.export takes assignments to attributes back

        # torch.export reads the names of inputs, and of their dynamic shapes, from the signature.
        @wraps(model.forward)
        def forward(*args, **kwargs):
            return self._tensors(*args, **kwargs, **fixed)

        signature = inspect.signature(model.forward)
        parameters = [p for name, p in signature.parameters.items() if name not in fixed]
        forward.__signature__ = signature.replace(parameters=parameters)
        self.forward = forward

    def _tensors(self, *args, **kwargs) -> tuple[Tensor, ...]:
        with our_attention() if self.attention else contextlib.nullcontext():
            result = self.model(*args, **kwargs)
        leaves, _ = pytree.tree_flatten_with_path(_plain(result))
        # A state that is returned, too, is a value of its own: the converter takes each value once.
        held = {id(t) for t in [*pytree.tree_leaves((args, kwargs)), *self.model.buffers()] if isinstance(t, Tensor)}
        tensors, again, seen = [], [], {}
        for path, leaf in leaves:
            if isinstance(leaf, Tensor):
                name = _name(path)
                first = seen.setdefault(id(leaf), name)
                if first is name:
                    tensors.append((name, leaf.clone() if id(leaf) in held else leaf))
                else:
                    again.append(f"{name} (the same as {first})")
        self.results.kept = [name or "output" for name, _ in tensors]
        self.results.dropped = again + [
            f"{_name(path) or 'output'} ({type(leaf).__name__})"
            for path, leaf in leaves
            if leaf is not None and not isinstance(leaf, Tensor)
        ]
        return tuple(leaf for _, leaf in tensors)


def _plain(result):
    """Outputs of transformers as dicts: version 4 does not tell pytree the names in them."""
    if isinstance(result, Mapping):
        return {name: _plain(value) for name, value in result.items()}
    return type(result)(map(_plain, result)) if type(result) in (tuple, list) else result


def _name(path) -> str:
    parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
    if parts and parts[0].isdigit():
        parts.insert(0, "output")
    return "_".join(parts).replace(".", "_")


@dataclass(frozen=True)
class Names:
    """What an asset calls its inputs, outputs and states; None takes the names of the model."""

    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    states: Sequence[str] | None = None


class Inputs(NamedTuple):
    """A call of a model: tensors by position and by name, and what is no tensor by name."""

    args: tuple
    kwargs: dict
    fixed: dict


@dataclass
class Function:
    """One function of an asset, exported.

    Attributes:
        name: its entry point.
        module: what was exported.
        call: the inputs that it was traced with.
        program: decomposed.
        names: all of them known.
    """

    name: str
    module: TensorsOf
    call: Inputs
    program: ExportedProgram
    names: Names

    def mutated(self) -> list[str]:
        """The names in the model of the buffers that are states."""
        return [name.removeprefix("model.") for name in self.program.graph_signature.buffers_to_mutate.values()]

    def given(self, call: Inputs, model: nn.Module | None = None) -> tuple[dict, dict]:
        """Inputs and states (copies) of a call, by their names in the asset; the states are those of model."""
        model = self.module.model if model is None else model
        signature = self.program.graph_signature
        changed = self.mutated()
        buffers = dict(model.named_buffers())
        states = [buffers[name] for name in changed]
        tensors = [leaf for leaf in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(leaf, Tensor)]
        placeholders = [value for value in signature.user_inputs if isinstance(value, str)]
        inputs = []
        for placeholder, tensor in zip(placeholders, tensors, strict=True):
            (states if placeholder in signature.user_inputs_to_mutate.values() else inputs).append(tensor)
        states = [state.detach().clone() for state in states]
        return dict(zip(self.names.inputs, inputs, strict=True)), dict(zip(self.names.states, states, strict=True))


def inputs_as_call(inputs) -> Inputs:
    """The call that inputs mean: a tensor, a tuple or list of positional ones, or a dict by name."""
    if isinstance(inputs, Tensor):
        return Inputs((inputs,), {}, {})
    if isinstance(inputs, Mapping):
        tensors = {name: value for name, value in inputs.items() if _has_tensor(value)}
        return Inputs((), tensors, {name: value for name, value in inputs.items() if name not in tensors})
    if not isinstance(inputs, (tuple, list)):
        raise TypeError(f"export: expected inputs a tensor, a tuple or a dict of them, got {type(inputs).__name__}")
    for i, value in enumerate(inputs):
        if not _has_tensor(value):
            raise TypeError(
                f"export: expected inputs[{i}] a tensor, got {type(value).__name__}; other arguments are given by "
                "name, in a dict"
            )
    return Inputs(tuple(inputs), {}, {})


def _has_tensor(value) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(value))


def traced(model: nn.Module, attention: bool, call: Inputs, dynamic_shapes) -> tuple[TensorsOf, ExportedProgram]:
    """The module that is exported in a model's place, and its program as torch.export gives it."""
    module = TensorsOf(model, attention, call.fixed)
    module.eval()
    if isinstance(dynamic_shapes, Mapping):
        dynamic_shapes = {name: shapes for name, shapes in dynamic_shapes.items() if name not in call.fixed}
    count_stand_ins(model.modules())
    program = torch.export.export(module, call.args, call.kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    return module, program


def decomposed(name: str, module: TensorsOf, call: Inputs, program: ExportedProgram, names: Names) -> Function:
    """A traced function in the operations that Core AI knows, with all its names."""
    program = program.run_decompositions(decompositions())
    drop_masks(program)
    move_transposes(program)
    signature = program.graph_signature
    changed = list(signature.buffers_to_mutate.values())
    given = [value for value in signature.user_inputs if isinstance(value, str)]
    inputs = [value for value in given if value not in signature.user_inputs_to_mutate.values()]
    if not module.results.kept and not changed and inputs == given:
        got = ", ".join(module.results.dropped) or "None"
        raise TypeError(f"export: expected a model that returns tensors or changes its buffers, got {got}")
    names = Names(
        _named("input_names", names.inputs, inputs),
        _named("output_names", names.outputs, module.results.kept),
        _named("state_names", names.states, [_flat(n) for n in changed] + [n for n in given if n not in inputs]),
    )
    return Function(name, module, call, program, names)


@cache
def decompositions() -> dict:
    """Apple's table of decompositions, and ours."""
    table = coreai_torch.get_decomp_table()
    table.update(ours())
    return table


def _flat(buffer: str) -> str:
    return buffer.removeprefix("model.").replace(".", "_")


def _named(argument: str, given: Sequence[str] | None, own: Sequence[str]) -> list[str]:
    if given is None:
        return list(own)
    if isinstance(given, str) or len(given) != len(own) or len(set(given)) != len(given):
        raise ValueError(f"export: expected {argument} {len(own)} different names, for {list(own)}, got {given!r}")
    return list(given)


def converted(functions: Sequence[Function]) -> tuple[AIProgram, dict]:
    """The Core AI program of exported functions, and what is known of each of its kernels, by name.

    Raises:
        NotImplementedError: names the operations that Core AI lacks and the modules that they come from.
    """
    emission = Emission()
    # Its default mode writes the paths of source files into the asset.
    converter = TorchConverter(mode=TorchConverter.Mode.RELEASE)
    register(converter, emission)
    for function in functions:
        check_operations(function.program, converter._user_defined_torch_lowering)
        converter.add_exported_program(
            function.program,
            input_names=function.names.inputs,
            output_names=function.names.outputs,
            state_names=function.names.states,
            entrypoint_name=function.name,
        )
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it reports its progress there
            program = converter.to_coreai()
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        if "torch_mtl4" in traceback.extract_tb(error.__traceback__)[-1].filename:
            raise  # an error of a lowering of ours
        raise NotImplementedError(
            f"export: expected operations that Core AI's converter (coreai-torch {coreai_torch.__version__}) takes, "
            f"got its {type(error).__name__}: {error}"
        ) from error
    rename_kernels(program, keep=emission.kernels)
    return program, dict(emission.kernels)


def check_operations(program: ExportedProgram, lowerings: Mapping[str, Callable]) -> None:
    """Raises NotImplementedError for operations without a lowering, with the modules that call them."""
    missing: dict[str, list[str]] = {}
    for node in program.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if node.target == torch.ops.aten.scaled_dot_product_attention.default:
            _refuse_dropout(node)
        namespace, name = node.target.namespace, node.target.__name__
        known = namespace in ("coreai", "coreaix") or f"{namespace}::{name}" in lowerings
        if known or node.target in _ASSERTIONS or (namespace == "aten" and name in ATEN_LOWERINGS):
            continue
        missing.setdefault(f"{namespace}::{name}", []).append(module_of(node))
    if missing:
        rows = [f"{op} in {', '.join(dict.fromkeys(where))}" for op, where in missing.items()]
        raise NotImplementedError(
            f"export: expected operations that Core AI (coreai-torch {coreai_torch.__version__}) has, "
            f"got {'; '.join(rows)}"
        )


def _refuse_dropout(node) -> None:
    """Core AI's converter would leave it out without a word."""
    dropout = (*node.args[4:5], node.kwargs.get("dropout_p", 0.0))[0]
    if dropout:
        raise NotImplementedError(
            f"export: expected attention without dropout, got dropout_p {dropout} in {module_of(node)}, "
            "also in evaluation mode"
        )


def module_of(node) -> str:
    """The path and class of the module that a node of a graph comes from."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return "the model"
    path, kind = stack[-1]
    name = getattr(kind, "__name__", str(kind).rpartition(".")[2])
    path = path.removeprefix("model").removeprefix(".")
    return f"{path or '(the model)'} ({name})"
