"""Finds modules that read the weight of a module below them instead of only calling it.

Some models ask `self.wo.weight.dtype` before they call `self.wo`, and some compute with `self.linear1.weight`
themselves. With bytes in place of floats the first casts activations to uint8 and the second computes with raw bytes.
The source text of the classes tells which do.
"""

import inspect
import re
from functools import cache

from torch import nn

SETUP = re.compile(r"__init__|_?init_?weights?|_?reset_parameters|post_init|_?tie_weights|extra_repr|__setstate__")


def reader_of_weight(model: nn.Module, name: str, key: str) -> str | None:
    """The class, above the module called name, whose methods read that module's parameter called key."""
    path = name.split(".")
    for depth in range(len(path)):
        owner = type(model.get_submodule(".".join(path[:depth])))
        text, source = f"self.{'.'.join(path[depth:])}.{key}", _source(owner)
        # Looking for the text alone is many times faster than for its words, and rules out nearly all classes.
        if text in source and re.search(rf"\b{re.escape(text)}\b", source):
            return owner.__name__
    return None


@cache
def _source(cls: type) -> str:
    """The methods of a class and its bases up to nn.Module, without those that only set up parameters."""
    methods = [
        method
        for base in cls.__mro__[: cls.__mro__.index(nn.Module)]
        for name, method in vars(base).items()
        if inspect.isfunction(method) and not SETUP.fullmatch(name)
    ]
    return "\n".join(_method_source(method) for method in methods)


def _method_source(method) -> str:
    try:
        return inspect.getsource(method)
    except (OSError, TypeError):  # made at run time: there is no text
        return ""
