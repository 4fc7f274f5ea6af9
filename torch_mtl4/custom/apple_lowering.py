"""A TorchMetalKernel in Apple's converter: the operation is that of Apple's own authoring class, its text is safer.

Beside Apple's text: the body stands on lines of its own, helpers in a namespace that no other kernel has, and the name
ends in a hash of the text in place of random letters.
"""

import hashlib
from typing import TYPE_CHECKING, Any

from coreai.authoring import CustomMetalKernel

from torch_mtl4.custom.signature import check_scalar
from torch_mtl4.custom.source import literal

if TYPE_CHECKING:
    from torch_mtl4.custom.apple import TorchMetalKernel

_LETTERS = 8
# As Apple's class declares scalars; the IR holds a bool as a byte.
_SCALARS = {bool: "bool", int: "int", float: "float"}


def construct(kernel: "TorchMetalKernel", scalars: dict[str, Any], values: list[Any], types: list[Any]) -> list[Any]:
    """The operation for a call with these numbers, whose other arguments and results are IR values and types."""
    declared = []
    for name, value in scalars.items():
        kind = _SCALARS[kernel._scalar_input_types[name]]
        check_scalar(kernel.name, name, kind, value)
        declared.append(f"{kind} {name} = {literal(float(value) if kind == 'float' else value)};")
    return _Lowering(kernel, declared)._construct_kernel_op(values, types)


class _Lowering(CustomMetalKernel):
    def __init__(self, kernel: "TorchMetalKernel", declared: list[str]):
        super().__init__(
            kernel.name, kernel.input_names, kernel.result_names, kernel.src, kernel.metal_parameters,
            kernel.helpers, kernel.dtype_templates,
        )  # fmt: skip
        self._kernel, self._declared = kernel, declared

    def template_kernel_src(self, kernel_id: str, input_metadata: list[Any], result_metadata: list[Any]) -> str:
        body, helpers = self.src, self.helpers
        # In a block of its own, where the numbers may take the names of the parameters that stand for them.
        lines = ["", "{", *self._declared, body, "}", ""]
        if helpers:
            lines.insert(2, f"using namespace {kernel_id}_parts;")
            self.helpers = f"namespace {kernel_id}_parts {{\n{helpers}\n}}"
        self.src = "\n".join(lines)
        try:
            return super().template_kernel_src(kernel_id, input_metadata, result_metadata)
        finally:
            self.src, self.helpers = body, helpers

    def _validate_and_segregate_inputs(self, input_values: list[Any]) -> Any:
        segregated = super()._validate_and_segregate_inputs(input_values)
        for _, meta in segregated.kernel_inputs:
            if meta.rank == 0 and meta.name in self._kernel._scalar_input_types:
                meta.metal_dtype = _SCALARS[self._kernel._scalar_input_types[meta.name]]
        return segregated

    def _construct_kernel_op(self, input_values: list[Any], result_types: list[Any]) -> list[Any]:
        """The base class takes a text from its cache, under ranks and types; so the text is put there before."""
        inputs = [meta for _, meta in self._validate_and_segregate_inputs(input_values).kernel_inputs]
        results = [meta for _, meta in self._process_result_types(result_types)]
        kinds = tuple((meta.rank, meta.metal_dtype) for meta in (*inputs, *results))
        text = self.template_kernel_src(self.name, inputs, results)
        name = f"{self.name}_{_letters(f'{self._kernel.generation} {text}')}"
        self.kernel_cache[kinds] = self._kernel.kernel_cache.setdefault(
            (kinds, tuple(self._declared)), (name, self.template_kernel_src(name, inputs, results))
        )
        return super()._construct_kernel_op(input_values, result_types)


def _letters(text: str) -> str:
    """Letters that tell one text from another."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    letters = ""
    for _ in range(_LETTERS):
        number, letter = divmod(number, 26)
        letters += chr(ord("a") + letter)
    return letters
