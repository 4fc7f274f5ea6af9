"""torch_mtl4.nn.quantize_linears and dequantize_linears: a model's linears to bytes and back, in place."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import nn

from torch_mtl4.formats import FORMATS
from torch_mtl4.nn.byte_weights import ByteWeights, check_scaling
from torch_mtl4.nn.mxfp8_linear import MXFP8Linear
from torch_mtl4.nn.quantized_linear import DEFAULT_SCALING as QUANTIZED_SCALING
from torch_mtl4.nn.quantized_linear import QuantizedLinear
from torch_mtl4.nn.weight_readers import reader_of_weight

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
MXFP8 = "mxfp8"
ROUTERS = ("gate", "router", "shared_expert_gate")


class Conversion(NamedTuple):
    """What became of one module: `reason` says why it was not converted, and is None if it was."""

    name: str
    module: str
    reason: str | None = None

    @property
    def converted(self) -> bool:
        return self.reason is None


class Kind(NamedTuple):
    """A sort of module that can be converted."""

    weights: Callable[[nn.Module], tuple[str, ...]]
    """The names of the parameters that become bytes; none if the module is of another kind."""
    convert: Callable[[nn.Module, str], ByteWeights]
    """(module, scaling) -> the module that replaces it."""
    refuse: Callable[[nn.Module], str | None] = lambda module: None
    """Why this module of the kind cannot be converted."""
    convert_to: Callable[[nn.Module, str, str | None], ByteWeights] | None = None
    """(module, format, scaling) -> the same in formats other than MXFP8, if there are any."""


def _linear_weights(module: nn.Module) -> tuple[str, ...]:
    return ("weight",) if isinstance(module, nn.Linear) and not isinstance(module, ByteWeights) else ()


def _refuse_subclass(module: nn.Module) -> str | None:
    return None if type(module) is nn.Linear else "a subclass of nn.Linear may compute something else"


def _to_quantized(module: nn.Linear, format: str, scaling: str | None) -> QuantizedLinear:
    return QuantizedLinear.from_linear(module, format=format, scaling=scaling or QUANTIZED_SCALING)


KINDS = [
    Kind(
        _linear_weights,
        lambda module, scaling: MXFP8Linear.from_linear(module, scaling=scaling),
        _refuse_subclass,
        _to_quantized,
    )
]


def register_kind(kind: Kind) -> None:
    """Makes quantize_linears know another sort of module."""
    KINDS.append(kind)


def kind_of(module: nn.Module) -> Kind | None:
    """The kind that module is of."""
    return next((kind for kind in KINDS if kind.weights(module)), None)


def quantize_linears(
    model: nn.Module, *, skip: Sequence[str] | None = None, scaling: str | None = None, format: str = MXFP8
) -> list[Conversion]:
    """Replaces the linear layers and expert weights of a model by modules of bytes, in place, one after the other.

    Layers stay as they are where bytes would break or harm them: subclasses of nn.Linear, weights shared with another
    module, layers whose weight another module reads, layers that the model keeps in float32, and those in skip.

    Args:
        model: holds the layers. Full-precision weights are freed as it goes.
        skip: names of modules to leave as they are, with all they contain: dotted paths or regular expressions that
            match whole components anywhere in a name ("lm_head", "layers.0", "mlp.gate"). None skips the output heads
            of a transformers model; [] skips nothing.
        scaling: see `torch_mtl4.mxfp8_quantize`; None is "rceil" for MXFP8 and "floor" for MXFP4, which lose least.
        format: "mxfp8"; or "mxfp4", "int4", "int8", for linear layers only (`QuantizedLinear`).

    Returns:
        A Conversion for each layer: converted, or the reason why not.

    Raises:
        ValueError: model is itself a layer; scaling or format is unknown; an entry of skip matches no module.
    """
    if format not in (MXFP8, *FORMATS):
        raise ValueError(f"quantize_linears: expected format one of {', '.join((MXFP8, *FORMATS))}, got {format!r}")
    if scaling is not None:
        check_scaling("quantize_linears", scaling)
    if kind_of(model) is not None:
        raise ValueError(
            "quantize_linears: expected model that contains layers, got a single "
            f"{type(model).__name__}; use {MXFP8Linear.__name__ if format == MXFP8 else QuantizedLinear.__name__}"
            ".from_linear"
        )
    for pattern in skip or ():
        if not any(matches(name, [pattern]) for name, _ in model.named_modules()):
            raise ValueError(f"quantize_linears: expected skip to name modules of the model, got {pattern!r}")
    conversions = plan_conversions(model, skip, format=format)
    for name in [c.name for c in conversions if c.converted]:
        layer = model.get_submodule(name)
        kind = kind_of(layer)
        if format == MXFP8:
            converted = kind.convert(layer, scaling or "rceil")
        else:
            converted = kind.convert_to(layer, format, scaling)
        replace_everywhere(model, layer, converted)
        del layer, converted
    return conversions


def dequantize_linears(model: nn.Module, *, dtype: torch.dtype | None = None) -> list[str]:
    """Replaces every module of bytes of a model by one with float weights of the same values, in place.

    Args:
        model: holds the modules.
        dtype: of the weights; None takes each module's own `float_dtype`.

    Returns:
        The names of the replaced modules.

    Raises:
        ValueError: model is itself such a module.
    """
    if isinstance(model, ByteWeights):
        raise ValueError(
            f"dequantize_linears: expected model that contains layers, got a single {type(model).__name__}; "
            "use its dequantize()"
        )
    names = [name for name, module in model.named_modules() if isinstance(module, ByteWeights)]
    for name in names:
        module = model.get_submodule(name)
        replace_everywhere(model, module, module.dequantize(dtype))
        del module
    return names


def replace_everywhere(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Puts new wherever model holds old: a module may be in several places."""
    for parent in model.modules():
        for child, module in parent._modules.items():
            if module is old:
                parent._modules[child] = new


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns matches whole components of a dotted name."""
    return any(re.search(rf"(?:^|\.)(?:{pattern})(?:\.|$)", name) for pattern in patterns)


def plan_conversions(
    model: nn.Module, skip: Sequence[str] | None, tied: Sequence[str] = (), format: str = MXFP8
) -> list[Conversion]:
    """What quantize_linears would do, without doing it.

    Args:
        model: may be on the meta device.
        skip: as for quantize_linears.
        tied: names of parameters that will be tied to others, but are not yet.
        format: as for quantize_linears.
    """
    keep = KeepRules(model, skip, tied, format)
    return [
        Conversion(name, type(module).__name__, reason)
        for name, module in model.named_modules()
        for reason in keep.reasons(name, module)
    ]


class KeepRules:
    """The rules that say which layers of a model stay as they are."""

    def __init__(self, model: nn.Module, skip: Sequence[str] | None, tied: Sequence[str], format: str = MXFP8):
        self.model = model
        self.format = format
        self.skip = skip
        self.tied = set(tied)
        self.heads = output_heads(model) if skip is None else []
        self.float32 = [
            pattern
            for attribute in ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")
            for pattern in getattr(model, attribute, None) or ()
        ]
        self.owners: dict[int, list[str]] = {}
        for name, module in model.named_modules():
            for parameter in module._parameters.values():
                self.owners.setdefault(id(parameter), []).append(name)

    def reasons(self, name: str, module: nn.Module) -> Iterator[str | None]:
        """One value if the module is a layer: why it stays, or None if it is to be converted."""
        kind = kind_of(module)
        if kind is not None:
            yield kind.refuse(module) or self._why_not(name, module, kind)
        elif not isinstance(module, (ByteWeights, nn.modules.conv._ConvNd)):
            stacked = [
                f"{key} {list(p.shape)}"
                for key, p in module._parameters.items()
                if p is not None and p.dtype in FLOATS and p.ndim >= 3 and min(p.shape) > 1
            ]
            if stacked:
                yield f"holds stacked weights of an unknown layout: {', '.join(stacked)}"

    def _why_not(self, name: str, module: nn.Module, kind: Kind) -> str | None:
        if self.format != MXFP8 and kind.convert_to is None:
            return f"a {type(module).__name__}, which MXFP8 can hold but {self.format} cannot"
        if self.skip is not None and matches(name, self.skip):
            return "in the list of modules to skip"
        if any(module is head for head in self.heads):
            return "an output head, kept unless the list of modules to skip says otherwise"
        if is_router(self.model, name):
            return "a router, whose choice of experts small errors change"
        if matches(name, self.float32):
            return "the model keeps it in float32"
        if hasattr(module, "_hf_hook"):
            return "accelerate moves its weights; quantize before dispatching the model"
        for key in kind.weights(module):
            weight = module._parameters.get(key)
            if weight is None:
                return f"its {key} is computed from other parameters"
            if type(weight) is not nn.Parameter or type(weight.data) is not torch.Tensor:
                return f"its {key} is a {type(weight.data).__name__}"
            if weight.dtype not in FLOATS:
                return f"its {key} is {weight.dtype}"
            others = [owner for owner in self.owners[id(weight)] if owner != name]
            if others or f"{name}.{key}" in self.tied:
                return f"its {key} is shared with {others[0] if others else 'another module'}"
            if reader := reader_of_weight(self.model, name, key):
                return f"{reader} reads its {key}"
        return None


def is_router(model: nn.Module, name: str) -> bool:
    """Whether the layer of that name chooses among the experts beside it."""
    parent, _, child = name.rpartition(".")
    return child in ROUTERS and "experts" in model.get_submodule(parent)._modules


def output_heads(model: nn.Module) -> list[nn.Module]:
    """The output embeddings of a transformers model, and the linears directly on a model for a task."""
    heads = []
    if callable(getattr(model, "get_output_embeddings", None)):
        heads.append(model.get_output_embeddings())
    if getattr(model, "base_model", model) is not model:
        heads += [child for child in model.children() if isinstance(child, nn.Linear)]
    return heads
