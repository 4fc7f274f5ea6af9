"""The MSL of our kernels in the form that Core AI takes: tensor handles as arguments, everything else in the text."""

import hashlib
from collections.abc import Mapping, Sequence

import torch

from torch_mtl4 import _metal_sources
from torch_mtl4.export.coreai.context import Slot

MSL_TYPES = {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bfloat", torch.uint8: "uchar"}

_HEAD = """#include <metal_stdlib>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
"""
_PLACE = {
    "uint3 group": "threadgroup_position_in_grid",
    "uint3 groups": "threadgroups_per_grid",
    "uint3 position": "thread_position_in_threadgroup",
    "uint3 threads": "threads_per_threadgroup",
    "uint simdgroup": "simdgroup_index_in_threadgroup",
    "uint lane": "thread_index_in_simdgroup",
}
_HASH_LENGTH = 12


def kernel_text(
    op: str,
    entry: str,
    constants: Mapping[str, bool | int | float],
    slots: Sequence[tuple[Slot, bool]],
    threads: int,
) -> tuple[str, str]:
    """(name, whole source) of a kernel.

    Args:
        op: whose metal/<op>/coreai.h has it.
        entry: the struct in there, with its template arguments.
        constants: what the headers are specialised for.
        slots: the tensors that the entry takes, in its order, and whether the call has them.
        threads: of a threadgroup.
    """
    namespace, library = _library(op, constants)
    declared = [
        f"tensor<device {MSL_TYPES[slot.dtype]}, dextents<int, {slot.rank}>, tensor_handle> {slot.name}"
        for slot, given in slots
        if given
    ]
    parameters = [f"{tensor} [[buffer({i})]]" for i, tensor in enumerate(declared)]
    parameters += [f"{declaration} [[{attribute}]]" for declaration, attribute in _PLACE.items()]
    operands = [
        f"{namespace}::{f'operand<{kind}>({slot.name})' if given else f'no_operand<{kind}>()'}"
        for slot, given in slots
        for kind in [f"{MSL_TYPES[slot.dtype]}, {slot.rank}"]
    ]
    place = ", ".join(declaration.split()[1] for declaration in _PLACE)
    kernel = f"""{{
  using Kernel = {namespace}::{entry};
  threadgroup Kernel::Memory memory;
  Kernel::run({", ".join(operands)}, memory, {{{place}}});
}}
"""
    signature = f"[[kernel, max_total_threads_per_threadgroup({threads})]] void {{}}({', '.join(parameters)}) "
    digest = hashlib.sha256((library + signature + kernel).encode()).hexdigest()[:_HASH_LENGTH]
    name = f"{op}_{digest}"
    return name, f'{_HEAD}{library}#line 1 "{name}"\n{signature.format(name)}{kernel}'


def _library(op: str, constants: Mapping[str, bool | int | float]) -> tuple[str, str]:
    """A namespace and its text, headers behind constants. It is compiled once, however many kernels bring it."""
    lines = _metal_sources.flattened_file(f"{op}/coreai.h").splitlines()
    system = sorted({line for line in lines if line.startswith(("#include <metal", "#include <Metal"))})
    body = "\n".join(
        [f"constant constexpr {_type(value)} {name} = {literal(value)};" for name, value in constants.items()]
        + ["" if line in system else line for line in lines]
    )
    digest = hashlib.sha256(body.encode()).hexdigest()[:_HASH_LENGTH]
    namespace = f"mtl4_{digest}"
    guard = namespace.upper()
    text = "\n".join(
        [*system, f"#ifndef {guard}", f"#define {guard}", f"namespace {namespace} {{", body, "}", "#endif", ""]
    )
    return namespace, text


def _type(value: bool | int | float) -> str:
    fits_int = not isinstance(value, int) or abs(value) < 1 << 31
    return type(value).__name__ if fits_int else "long"


def literal(value: bool | int | float) -> str:
    """A number as MSL spells it, floats rounded to float32."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return f"{torch.tensor(value, dtype=torch.float32).item()!r}f"
