"""How a module computes attention, read from its class: which of the ways to our kernel it can take."""

import functools
import inspect
import re
from collections.abc import Iterator
from types import CodeType, FunctionType

from torch import nn

INTERFACE = "interface"  # looks its function up in transformers' AttentionInterface by name
SDPA = "sdpa"  # calls F.scaled_dot_product_attention
OWN = "own"  # multiplies and softmaxes itself

_SDPA_NAMES = {"scaled_dot_product_attention", "dispatch_attention_fn", "multi_head_attention_forward"}
_OWN_NAMES = {"softmax", "Softmax", "XSoftmax", "matmul", "bmm", "baddbmm", "einsum", "eager_attention_forward"}


def attention_kind(module: nn.Module) -> str | None:
    """INTERFACE, SDPA or OWN, None for a module that computes no attention itself.

    The names that the code of its class (and of its diffusers processor) refers to decide; nothing is run. OWN is said
    of classes with "attention" in their name only, since other modules use softmax too.
    """
    kind = _kind_of_class(type(module))
    if kind == SDPA and fused_is_off(module):
        return OWN
    processor = getattr(module, "processor", None)
    if kind in (None, OWN) and processor is not None and not isinstance(processor, (str, int, float, bool)):
        kind = _kind_of_class(type(processor)) or kind
    return kind


def fused_is_off(module: nn.Module) -> bool:
    """Whether a timm module was built to compute attention itself though it could call F.sdpa."""
    return getattr(module, "fused_attn", None) is False


@functools.cache
def _kind_of_class(cls: type) -> str | None:
    names = set().union(*(_names_in(function.__code__) for function in _functions(cls)), ())
    if "ALL_ATTENTION_FUNCTIONS" in names:
        return INTERFACE
    if names & _SDPA_NAMES:
        return SDPA
    if re.search(r"attention|attn", cls.__name__, re.IGNORECASE) and names & _OWN_NAMES:
        return OWN
    return None


def _functions(cls: type) -> Iterator[FunctionType]:
    """The functions that instances have as methods, without those of the libraries' base classes."""
    seen = set()
    for base in cls.__mro__:
        # transformers' base class of all models names the interface too.
        if base in (nn.Module, object) or base.__module__ == "transformers.modeling_utils":
            continue
        for name, value in vars(base).items():
            function = inspect.unwrap(value) if callable(value) else getattr(value, "__func__", None)
            if isinstance(function, FunctionType) and name not in seen:
                seen.add(name)
                yield function


def _names_in(code: CodeType) -> set[str]:
    nested = (_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(code.co_freevars, *nested)
