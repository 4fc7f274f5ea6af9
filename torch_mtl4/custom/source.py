"""The whole text of one kernel for certain ranks, dtypes and scalars, in the two forms in which a tensor is passed.

handle: tensors are arguments, as Core AI binds them and the MSL runner does. inline: buffers are, and the kernel makes
tensors of the same names from them, since the encoder of torch's stream takes no tensor. The user's body and helpers
are the same in both, on lines of their own.
"""

import functools
import hashlib
from dataclasses import dataclass

import torch

from torch_mtl4.custom.signature import MSL_TYPES, Signature
from torch_mtl4.ops._errors import expected

HANDLE, INLINE = "handle", "inline"
FORMS = (HANDLE, INLINE)

_HEAD = """#include <metal_stdlib>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
"""
LAYOUT = "mtl4_layout"


@dataclass(frozen=True)
class Operand:
    """A tensor of a call, as far as the text depends on it."""

    name: str
    rank: int
    dtype: torch.dtype

    @property
    def element(self) -> str:
        return MSL_TYPES[self.dtype]

    def tensor_type(self, form: str) -> str:
        return f"tensor<device {self.element}, metal::dextents<int, {self.rank}>, tensor_{form}>"


@dataclass(frozen=True, eq=False)
class Specialization:
    """A kernel's text for certain operands (inputs, then outputs) and scalars."""

    signature: Signature
    body: str
    helpers: str
    operands: tuple[Operand, ...]
    scalars: tuple[tuple[str, str, str], ...]  # (type, name, value as MSL spells it)

    @functools.cached_property
    def name(self) -> str:
        """Of the kernel function: the op's, and a hash of all that the text has."""
        digest = hashlib.sha256(self._text(HANDLE, self.signature.op).encode()).hexdigest()
        return f"{self.signature.op}_{digest[:8]}"

    def text(self, form: str) -> str:
        """The text, which has one kernel named `name`."""
        if form not in FORMS:
            expected(ValueError, self.signature.op, f"form one of {', '.join(FORMS)}", repr(form))
        return self._texts[form]

    @functools.cached_property
    def _texts(self) -> dict[str, str]:
        return {form: self._text(form, self.name) for form in FORMS}

    def _text(self, form: str, name: str) -> str:
        generated = f'#line 1 "{self.signature.op}.generated"'
        # In a namespace of its own: Core AI may compile several kernels into one library, where two helpers of one
        # name would clash.
        parts = f"{name}_parts"
        return "\n".join(
            (
                generated,
                f"{_HEAD}namespace {parts} {{",
                *self._declarations(),
                *((f'#line 1 "{self.signature.op}.helpers"', self.helpers, generated) if self.helpers else ()),
                "}",
                f"[[kernel]] void {name}({', '.join(self._parameters(form))}) {{",
                f"using namespace {parts};",
                *(self._tensors() if form == INLINE else ()),
                *(f"{kind} {scalar} = {value};" for kind, scalar, value in self.scalars),
                f'#line 1 "{self.signature.op}"',
                self.body,
                generated,
                "}",
                "",
            )
        )

    def _declarations(self) -> list[str]:
        elements = {operand.name: operand.element for operand in self.operands}
        lines = [f"using {alias} = {elements[operand]};" for operand, alias in self.signature.templates.items()]
        for constant, value in self.signature.constants.items():
            lines.append(f"constant constexpr {type(value).__name__} {constant} = {literal(value)};")
        return lines

    def _parameters(self, form: str) -> list[str]:
        if form == HANDLE:
            declared = [f"{o.tensor_type(form)} {o.name} [[buffer({i})]]" for i, o in enumerate(self.operands)]
        else:
            declared = [f"device {o.element}* mtl4_{o.name} [[buffer({i})]]" for i, o in enumerate(self.operands)]
            declared.append(f"constant int* {LAYOUT} [[buffer({len(self.operands)})]]")
        return declared + [f"{p.type} {p.name} [[{p.attribute}]]" for p in self.signature.thread_parameters]

    def _tensors(self) -> list[str]:
        """Declarations of the operands from buffers and a list of numbers: of each, its extents, then its strides."""
        lines, at = [], 0
        for o in self.operands:
            extents, strides = (
                ", ".join(f"{LAYOUT}[{at + first + d}]" for d in range(o.rank)) for first in (0, o.rank)
            )
            extents_type = f"metal::dextents<int, {o.rank}>"
            made = f"mtl4_{o.name}, {extents_type}({extents}), metal::array<int, {o.rank}>{{{strides}}}"
            lines.append(f"{o.tensor_type(INLINE)} {o.name}({made});")
            at += 2 * o.rank
        return lines


def literal(value: bool | int | float) -> str:
    """A number as MSL spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value!r}f" if isinstance(value, float) else str(value)
