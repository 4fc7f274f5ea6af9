"""Small modules that call our ops, converted to Core AI."""

import warnings

import pytest
import torch
from torch import nn

pytest.importorskip("coreai_torch", reason="export to Core AI needs coreai-torch: pip install 'torch_mtl4[coreai]'")

from coreai_torch import TorchConverter, get_decomp_table

from torch_mtl4.export.coreai import ops
from torch_mtl4.export.coreai.context import Emission


class Calls(nn.Module):
    """A module that is one function of its inputs, and of constants that it holds as buffers."""

    def __init__(self, function, **constants):
        super().__init__()
        self.function, self.names = function, list(constants)
        for name, tensor in constants.items():
            self.register_buffer(name, tensor)

    def forward(self, *inputs):
        return self.function(*inputs, **{name: getattr(self, name) for name in self.names})


def convert(module, inputs, dynamic=None, prepare=lambda program: None):
    """(program of Core AI, Emission); `dynamic` has a dict of Dims for each input."""
    emission = Emission()
    module = module if isinstance(module, Calls) else Calls(module)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.export.export(module.eval(), tuple(inputs), dynamic_shapes=dynamic and (tuple(dynamic),))
        program = program.run_decompositions(get_decomp_table())
        prepare(program)
        converter = TorchConverter(mode=TorchConverter.Mode.RELEASE)
        ops.register(converter, emission)
        converter.add_exported_program(program)
        return converter.to_coreai(), emission


def operations(program, name=None):
    """The operations of a program in their order, those of one name only if it is given."""
    found = []

    def walk(operation):
        for region in operation.regions:
            for block in region.blocks:
                for inner in block.operations:
                    found.append(inner.operation)
                    walk(inner.operation)

    walk(program._module._mlir_module.operation)
    return [operation for operation in found if name in (None, operation.name)]


def kernels_of(program):
    """(name, text) of every kernel call of a program."""
    return [
        (call.attributes["kernel_name"].value, call.attributes["kernel_source"].value)
        for call in operations(program, "coreai.metal4_kernel")
    ]


def constant_of(value):
    """The numbers of a constant of the IR; None if it is computed."""
    owner = value.owner
    if owner.name != "coreai.constant":
        return None
    return [int(number) for number in owner.attributes["value"]]
