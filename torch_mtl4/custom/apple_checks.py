"""The errors of Apple's TorchMetalKernel: what its constructor and its call refuse, in its words."""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args, get_origin

from torch import Tensor

from torch_mtl4.custom.signature import TENSOR
from torch_mtl4.ops._errors import expected

_KINDS = {Tensor: TENSOR, int: "int", float: "float", bool: "bool"}
SINGLE, LIST, TUPLE = "single", "list", "tuple"


def check_names(name: str, input_names: Sequence[str], result_names: Sequence[str]) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"Kernel name must be a non-empty string, got {name!r}")
    if not result_names:
        raise ValueError("result_names must contain at least one entry")
    for what, names in (("input", input_names), ("result", result_names)):
        if doubled := _doubled(names):
            raise ValueError(f"Duplicate {what} names: {doubled}")
    if both := sorted(set(input_names) & set(result_names)):
        raise ValueError(f"Names appear in both input_names and result_names: {both}")


def check_annotations(
    name: str, input_names: Sequence[str], result_names: Sequence[str], torch_defn: Callable
) -> tuple[list[str], str]:
    """(what each input is, how results are returned)."""
    signature = inspect.signature(torch_defn, eval_str=True)
    kinds = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"custom kernels do not support variadic parameters (*args / **kwargs); got {parameter}")
        if parameter.annotation not in _KINDS:
            raise TypeError(
                "custom kernels only support `torch.Tensor`, `float`, `bool` and `int` inputs, "
                f"got {parameter.annotation}"
            )
        if parameter.default is not parameter.empty:
            expected(TypeError, name, f"torch_defn's {parameter.name} without a default", repr(parameter.default))
        kinds.append(_KINDS[parameter.annotation])
    if len(kinds) != len(input_names):
        raise ValueError(
            "torch function should have same number of parameters as specified by input names, "
            f"expected {len(input_names)}, got {len(kinds)}"
        )
    return kinds, _returns(signature.return_annotation, result_names)


def _returns(annotation: Any, result_names: Sequence[str]) -> str:
    if annotation is Tensor:
        if len(result_names) != 1:
            raise ValueError(
                "torch_defn returns a single torch.Tensor, but result_names has "
                f"{len(result_names)} entries: {list(result_names)}"
            )
        return SINGLE
    kind = {tuple: TUPLE, list: LIST}.get(get_origin(annotation))
    members = get_args(annotation)
    if kind is None or any(member is not Tensor for member in members):
        raise TypeError(
            "Metal kernels only support return types of `torch.Tensor`, `list[torch.Tensor]`, or "
            "`tuple[torch.Tensor]` (with a concrete number of tuple members). "
            f"The torch callback has a return type of {annotation!s}"
        )
    if kind == TUPLE and len(members) != len(result_names):
        raise ValueError(
            f"torch_defn returns tuple of {len(members)} tensors, but result_names has "
            f"{len(result_names)} entries: {list(result_names)}"
        )
    return kind


def check_templates(input_names: Sequence[str], templates: Mapping[str, str]) -> None:
    if unknown := set(templates) - set(input_names):
        raise ValueError(f"Inputs {unknown} not specified among the kernel's input names; templates are of inputs")
    if doubled := _doubled(list(templates.values())):
        raise ValueError(f"Provided duplicated template strings {doubled}; each must be unique")
    if "" in templates.values():
        expected(ValueError, "template_dtypes", "placeholders of at least one character", "''")


def check_call(name: str, result_names: Sequence[str], grid: Sequence, group: Sequence, shapes: Sequence) -> None:
    for what, sizes in (("threads_per_grid", grid), ("threads_per_thread_group", group)):
        if len(sizes) != 3:
            raise ValueError(f"{what} must be a 3-tuple, got {len(sizes)} elements: {sizes!r}")
        _check_sizes(name, what, sizes)
    if len(shapes) != len(result_names):
        raise ValueError(
            f"result_shapes must contain one shape per result name; expected {len(result_names)} "
            f"(for {list(result_names)}), got {len(shapes)}"
        )
    for result, shape in zip(result_names, shapes, strict=True):
        _check_sizes(name, f"result_shapes of {result}", shape)


def _check_sizes(name: str, what: str, sizes: Sequence) -> None:
    # Apple's class wraps them to 32 unsigned bits in silence.
    for n in sizes:
        if isinstance(n, int) and not 0 <= n < 2**32:
            expected(ValueError, name, f"{what} of sizes from 0 to 2^32 - 1", list(sizes))


def _doubled(names: Sequence[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)
