"""F.scaled_dot_product_attention on our kernel while a model is traced, by whatever name the model calls it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from torch_mtl4 import enabled


@contextmanager
def our_attention() -> Iterator[None]:
    """`torch_mtl4.enabled`, also for models that hold the function itself (`from torch.nn.functional import ...`)."""
    with enabled(), _HeldFunction():
        yield


class _HeldFunction(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch._C._nn.scaled_dot_product_attention:
            ours = F.scaled_dot_product_attention
            # Where it asks for PyTorch's own function itself, it has counted the call and its reason.
            if sys._getframe(1).f_code is not getattr(ours, "__code__", None):
                func = ours
        return func(*args, **(kwargs or {}))
