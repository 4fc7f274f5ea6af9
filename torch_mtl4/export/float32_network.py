"""A model as a function of float32 tensors, which is what Metal 4's machine learning encoder calls."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

# Through float32 every integer up to this size passes exactly.
LARGEST_INTEGER = 2**24


class Float32Network(nn.Module):
    """The model as a function of float32 tensors that returns a flat tuple of tensors.

    Its forward has the signature of the inputs, since coremltools names them after the arguments.
    """

    def __init__(self, model: nn.Module, inputs, input_names: Sequence[str] | None):
        super().__init__()
        self.model = model
        by_name = isinstance(inputs, Mapping)
        values = list(inputs.values()) if by_name else list(inputs)
        names = list(inputs) if by_name else _argument_names(model, len(values), input_names)
        if by_name and input_names is not None:
            raise ValueError("mlpackage: expected input_names None with inputs by name, got names for both")
        for name, value in zip(names, values, strict=True):
            _check_input(name, value)
        self.names, self.dtypes = names, [value.dtype for value in values]
        self.keyword = by_name
        self.examples = tuple(value.float() for value in values)
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]

        def forward(*tensors):
            return tuple(leaf for leaf in pytree.tree_leaves(self._call(tensors)) if leaf is not None)

        forward.__signature__ = inspect.Signature(parameters)
        self.forward = forward

    def _call(self, tensors: Sequence[Tensor]):
        values = [_cast(value, dtype) for value, dtype in zip(tensors, self.dtypes, strict=True)]
        return self.model(**dict(zip(self.names, values, strict=True))) if self.keyword else self.model(*values)

    def outputs(self, names: Sequence[str] | None) -> list[tuple[str, torch.dtype]]:
        """The name and the model's dtype of every output, from one run of the model on the examples."""
        leaves = [
            (path, leaf) for path, leaf in pytree.tree_leaves_with_path(self._call(self.examples)) if leaf is not None
        ]
        for path, leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise TypeError(
                    f"mlpackage: expected outputs that are tensors, got {type(leaf).__name__} at "
                    f"{pytree.keystr(path) or 'the result'} (caches: call the model with use_cache=False)"
                )
        found = _unique([_output_name(path, len(leaves)) for path, _ in leaves])
        if names is not None:
            if len(names) != len(found) or len(set(names)) != len(names):
                raise ValueError(f"mlpackage: expected output_names {len(found)} distinct names, got {list(names)}")
            found = list(names)
        for name in found:
            _check_name("output_names", name)
            if name in self.names:
                raise ValueError(f"mlpackage: expected output_names other than the inputs', got {name!r} for both")
        return [(name, leaf.dtype) for name, (_, leaf) in zip(found, leaves, strict=True)]


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return value != 0
    # Core ML counts in 32 bits.
    return value.to(torch.int32 if dtype == torch.int64 else dtype)


def _check_input(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"mlpackage: expected inputs that are tensors, got {type(value).__name__} for {name}")
    if value.is_complex() or value.dtype == torch.float64:
        raise TypeError(f"mlpackage: expected {name} of a dtype that float32 holds, got {value.dtype}")
    if not value.is_floating_point() and value.numel() and (largest := int(value.long().abs().max())) > LARGEST_INTEGER:
        raise ValueError(f"mlpackage: expected {name} within 2**24, which float32 holds, got {largest}")
    _check_name("input_names", name)


def _check_name(argument: str, name: Any) -> None:
    if not (isinstance(name, str) and name.isidentifier()):
        raise ValueError(f"mlpackage: expected {argument} that are identifiers, got {name!r}")


def _argument_names(model: nn.Module, count: int, names: Sequence[str] | None) -> list[str]:
    if names is None:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(model.forward).parameters.values()
        names = [parameter.name for parameter in parameters if parameter.kind in kinds][:count]
    if len(names) != count or len(set(names)) != count:
        raise ValueError(f"mlpackage: expected input_names {count} distinct names, got {list(names)}")
    return list(names)


def _output_name(path, count: int) -> str:
    words = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
    name = "_".join(words) if any(word.isidentifier() for word in words) else "_".join(["output", *words])
    return "output" if count == 1 and not words else "".join(c if c.isalnum() else "_" for c in name)


def _unique(names: list[str]) -> list[str]:
    return [name if names.count(name) == 1 else f"{name}_{i}" for i, name in enumerate(names)]
