"""References lowered into a Core AI program, in the place of kernels."""

from collections.abc import Callable, Sequence

import coreai_torch
import numpy as np
import torch
from torch import Tensor, nn

from torch_mtl4.export.coreai._apple import ATEN_LOWERINGS, Location, get_target, ir, preprocess_graph
from torch_mtl4.export.coreai.asset import sizes_of
from torch_mtl4.export.coreai.interpreter import to_numpy

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


class TwinError(RuntimeError):
    """A kernel of the asset and its reference do not fit together."""


class Inliner:
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
