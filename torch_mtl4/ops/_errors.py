"""Errors that keep their class and text in eager mode, in fake kernels and under torch.compile."""

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch

# Dynamo replaces what a traced function or a fake kernel raises by its own RuntimeError, and drops or wraps the text;
# IndexError is the one class that it hands to the caller as it is. So while a graph is traced we raise subclasses of
# the right class and of IndexError.
_TRACED = {
    error.__name__: type(error.__name__, (error, IndexError), {"__module__": "builtins"})
    for error in (TypeError, ValueError, NotImplementedError)
}


def expected(error: type[Exception], op: str, what: str, got: object) -> NoReturn:
    """Raises `error` with the text every message of the package has: `op: expected <what>, got <got>`."""
    text = f"{op}: expected {what}, got {got}"
    if torch.compiler.is_compiling():
        _raise_while_tracing(error.__name__, text)
    raise error(text)


def _raise_while_tracing(name: str, text: str) -> NoReturn:
    raise _TRACED[name](text)


# What the decorator torch.compiler.assume_constant_result sets, which would import all of Dynamo (seconds) to do so.
_raise_while_tracing._dynamo_marked_constant = True


def traceable(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, its errors readable under torch.compile."""

    @functools.wraps(function)
    def traced(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError, NotImplementedError) as error:
            readable = _TRACED.get(type(error).__name__)
            raise error if readable is None else readable(*error.args) from error

    return traced


def fake_kernel(op: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the function as the fake kernel of `op`."""
    from torch_mtl4 import _ops

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        torch.library.register_fake(f"torch_mtl4::{op}", traceable(function), lib=_ops.LIBRARY)
        return function

    return register
