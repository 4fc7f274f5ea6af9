"""torch_mtl4.enabled, enable and disable: F.scaled_dot_product_attention on this package's kernel."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

from torch_mtl4 import _calls
from torch_mtl4.integrations.names import restore_sdpa_name, serve_sdpa_name
from torch_mtl4.integrations.supported import autocast_dtype, why_unsupported
from torch_mtl4.ops.scaled_dot_product_attention import scaled_dot_product_attention


class _ThreadState(threading.local):
    depth = 0
    strict = False


_thread = _ThreadState()
_lock = threading.RLock()
_users = 0
_everywhere = False
_bound: Callable | None = None
_original: Callable | None = None


@contextmanager
def enabled(*, strict: bool = False) -> Iterator[None]:
    """Within this context, torch.nn.functional.scaled_dot_product_attention of this thread runs on our kernel.

    Covers what calls it by that name on cpu and mps: nn.MultiheadAttention (except the fast path that torch takes in
    evaluation without gradients), timm, diffusers, transformers models of any attn_implementation that end in it.
    Calls that the kernel does not take (dropout, float64, other devices, tensor subclasses) run torch's own function
    and are counted with the reason, see `torch_mtl4.report`.

    Contexts nest, and are left with the previous state on an exception. Other threads, also those that this thread
    starts within the context, keep torch's function. While a context is open anywhere, the name in
    torch.nn.functional is bound to a function that asks for the thread's state; afterwards it is what it was before.
    Also a decorator.

    Args:
        strict: raise instead, for calls that the kernel does not take. Holds for the contexts inside too.

    Raises:
        NotImplementedError: from attention calls in strict mode, with the reason.
    """
    previous = _thread.depth, _thread.strict
    _bind()
    _thread.depth, _thread.strict = previous[0] + 1, previous[1] or strict
    try:
        yield
    finally:
        _thread.depth, _thread.strict = previous
        _unbind()


def enable() -> None:
    """Does what `enabled` does, for all threads until `disable`, and serves transformers' name "sdpa" as well.

    Models with attn_implementation="sdpa", the default of most, and transformers' continuous batching then run on our
    kernel without a change. Calling it twice is the same as once.
    """
    global _everywhere
    with _lock:
        if not _everywhere:
            _bind()
            serve_sdpa_name()
            _everywhere = True


def disable() -> None:
    """Undoes `enable`."""
    global _everywhere
    with _lock:
        if _everywhere:
            _everywhere = False
            restore_sdpa_name()
            _unbind()


def _bind() -> None:
    global _users, _bound, _original
    with _lock:
        _users += 1
        if _users == 1:
            _original = F.scaled_dot_product_attention
            _bound = F.scaled_dot_product_attention = _dispatcher(_original)


def _unbind() -> None:
    global _users
    with _lock:
        _users -= 1
        # Somebody may have put another function over ours since; that one stays, and ours passes its calls on.
        if _users == 0 and F.scaled_dot_product_attention is _bound:
            F.scaled_dot_product_attention = _original


def _dispatcher(original: Callable) -> Callable:
    def scaled_dot_product_attention(
        query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
    ):
        options = {"attn_mask": attn_mask, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        if not (_thread.depth or _everywhere):
            return original(query, key, value, dropout_p=dropout_p, **options)
        reason = _why_not(query, key, value, attn_mask, dropout_p)
        module = None if torch.compiler.is_dynamo_compiling() else _calling_module()
        if reason is not None:
            _calls.refuse_if_strict(_thread.strict, module, reason)
        _calls.record(module, reason)
        if reason is not None:
            return original(query, key, value, dropout_p=dropout_p, **options)
        return _fused(query, key, value, **options)

    return scaled_dot_product_attention


def _fused(query, key, value, *, attn_mask, **options) -> Tensor:
    dtype = autocast_dtype(query.device.type)
    if dtype is not None:
        query, key, value = (t.to(dtype) for t in (query, key, value))
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            attn_mask = attn_mask.to(dtype)
    return scaled_dot_product_attention(query, key, value, attn_mask, **options)


def _why_not(query, key, value, attn_mask, dropout_p: float) -> str | None:
    for tensor in (query, key, value, *(() if attn_mask is None else (attn_mask,))):
        if type(tensor) not in (Tensor, nn.Parameter, FakeTensor):  # fake ones when torch.export traces
            return f"{type(tensor).__name__} in place of a plain tensor"
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        return "a torch.func transform"
    if dropout_p > 0:
        return f"dropout {dropout_p}"
    return why_unsupported(query, value)


def _calling_module() -> nn.Module | None:
    # F.sdpa is not told who calls. Hooks that note it would slow every module down, a look up the stack only this call.
    frame = sys._getframe(2)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, nn.Module):
            return caller
        frame = frame.f_back
    return None
