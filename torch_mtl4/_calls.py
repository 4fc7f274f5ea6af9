"""Counts, module by module, the calls that took a kernel of ours and those that could not, with the reason."""

import os
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import nn


@dataclass
class Calls:
    """What the calls of one module came to.

    Attributes:
        fused: calls that took the kernel.
        traced: calls put into a graph by torch.compile, which take the kernel in every run of it; a graph counts when
            it is traced, not when it runs.
        unfused: reason -> calls (or traces) that took another path for it.
    """

    fused: int = 0
    traced: int = 0
    unfused: Counter = field(default_factory=Counter)


_calls: WeakKeyDictionary[nn.Module, Calls] = WeakKeyDictionary()
_stands_for: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()
_lock = threading.Lock()


def count_stand_ins(modules: Iterable[nn.Module]) -> None:
    """Counts for these modules the calls of torch.export's stand-ins for modules that a model has by two names."""
    with _lock:
        for module in modules:
            _stands_for[id(vars(module))] = module  # a stand-in has the module's own dict


def record(module: nn.Module | None, reason: str | None = None) -> None:
    """Counts one call of `module`; `reason` says why it did not take the kernel. None: a caller without a module."""
    if module is None:
        return
    _count(module, reason, torch.compiler.is_compiling())


def _count(module: nn.Module, reason: str | None, traced: bool) -> None:
    with _lock:
        named = _stands_for.get(id(vars(module)), module)
        calls = _calls.setdefault(named if vars(named) is vars(module) else module, Calls())
        if reason is not None:
            calls.unfused[reason] += 1
        elif traced:
            calls.traced += 1
        else:
            calls.fused += 1


# What torch.compiler.assume_constant_result sets, without its import of the whole compiler: a traced call runs once, at
# trace time, in place of a change of Python state in the graph, on which every later run would be guarded.
_count._dynamo_marked_constant = True


def calls_of(module: nn.Module) -> Calls:
    """A copy of the counts of one module."""
    with _lock:
        calls = _calls.get(module, Calls())
        return replace(calls, unfused=Counter(calls.unfused))


def forget(modules) -> None:
    """Sets the counts of some modules to zero."""
    with _lock:
        for module in modules:
            _calls.pop(module, None)


def strict_by_environment() -> bool:
    """Whether TORCH_MTL4_STRICT asks for an error in place of any path but the kernel."""
    return os.environ.get("TORCH_MTL4_STRICT", "0") not in ("", "0")


def refuse_if_strict(strict: bool, module: nn.Module | None, reason: str) -> None:
    """Raises if strict mode is on; `reason` says why the call cannot take the kernel."""
    if strict or strict_by_environment():
        where = "" if module is None else f" in {type(module).__name__}"
        raise NotImplementedError(
            f"mtl4 attention: expected a call that the kernel takes (strict mode), got {reason}{where}"
        )
