"""Runs a callback once another library's module is loaded, without importing it."""

import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Callback = Callable[[ModuleType], None]

_callbacks: dict[str, list[Callback]] = {}
_lock = threading.RLock()


def when_imported(module_name: str, callback: Callback) -> None:
    """Calls `callback(module)` now if `module_name` is loaded, else right after its import.

    The callback also runs again after a reload, so it must be idempotent. An exception in it becomes a warning:
    importing another library never fails because of this one.

    Args:
        module_name: the dotted name of a module, which need not be installed.
        callback: takes the loaded module.
    """
    with _lock:
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
        _callbacks.setdefault(module_name, []).append(callback)
        module = sys.modules.get(module_name)
    if module is None:
        return
    if getattr(module.__spec__, "_initializing", False):
        # Another thread is in the middle of importing it: wait. Should that import fail, the callback stays registered.
        with suppress(Exception):
            __import__(module_name)
        module = sys.modules.get(module_name)
    if module is not None:
        _call(callback, module_name, module)


def _call(callback: Callback, module_name: str, module: ModuleType) -> None:
    try:
        callback(module)
    except Exception as error:
        warnings.warn(
            f"torch_mtl4: the integration with {module_name} is off: {type(error).__name__}: {error}", stacklevel=3
        )


class _Finder(MetaPathFinder):
    """Finds what the other finders find, with a loader that calls back."""

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        if name not in _callbacks:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    _call_back_after_exec(spec.loader, name)
                return spec
        return None


def _call_back_after_exec(loader, name: str) -> None:
    # An attribute of this one loader object, not a wrapper class: its type and its other methods stay visible.
    exec_module = loader.exec_module

    def exec_and_call_back(module: ModuleType) -> None:
        exec_module(module)
        for callback in tuple(_callbacks[name]):
            _call(callback, name, sys.modules.get(name, module))

    loader.exec_module = exec_and_call_back


_finder = _Finder()
