"""What modules with byte weights share: bytes stay bytes in casts, loads and copies."""

import torch
from torch import Tensor, nn

from torch_mtl4.ops.mxfp8 import mxfp8_quantize

BLOCK = 32
SCALINGS = ("floor", "rceil", "ceil", "even")


def check_scaling(where: str, scaling: str) -> str:
    """Returns scaling, or raises the error of a caller named `where`."""
    if scaling not in SCALINGS:
        raise ValueError(f"{where}: expected scaling 'floor', 'rceil', 'ceil' or 'even', got {scaling!r}")
    return scaling


def scale_shape(*shape: int) -> tuple[int, ...]:
    """The shape of the scale bytes of a weight: one byte for 32 values of the last dimension."""
    return (*shape[:-1], (shape[-1] + BLOCK - 1) // BLOCK)


def frozen(data: Tensor) -> nn.Parameter:
    """A parameter that never requires a gradient."""
    return nn.Parameter(data, requires_grad=False)


def empty_bytes(*shape: int, device=None) -> nn.Parameter:
    """A frozen parameter of uninitialized bytes."""
    return frozen(torch.empty(shape, dtype=torch.uint8, device=device))


class ByteWeights(nn.Module):
    """A module whose weights are uint8 parameters, which stand for values of a float dtype.

    uint8, because `.to(dtype)` would cast float8 parameters. The float dtype is remembered as that of an empty buffer,
    which casts, copies and pickles take along.

    Attributes:
        weight_names: the parameters that are bytes; the scales of each have its name with `_scale` after it.
    """

    weight_names: tuple[str, ...] = ("weight",)
    scaling: str
    _float_dtype: Tensor

    def _init_float_dtype(self, dtype: torch.dtype | None, device=None) -> None:
        dtype = torch.get_default_dtype() if dtype is None else dtype
        self.register_buffer("_float_dtype", torch.empty(0, dtype=dtype, device=device), persistent=False)

    @property
    def float_dtype(self) -> torch.dtype:
        """The dtype that the weights get from `dequantize()`."""
        return self._float_dtype.dtype

    def scale_of(self, name: str) -> nn.Parameter:
        """The scales of the weight called name."""
        return self._parameters[f"{name}_scale"]

    def _holds_bytes(self, name: str) -> bool:
        """Whether the parameter of a name should be bytes. What it is may be a loader's mistake (transformers 4)."""
        return True

    def quantized(self, weight: Tensor) -> dict[str, Tensor]:
        """The bytes and scales of a weight as the float module stores it, by what their names add to the weight's."""
        data, scale = mxfp8_quantize(weight.detach(), scaling=self.scaling)
        return {"": data, "_scale": scale}

    def dequantize(self, dtype: torch.dtype | None = None) -> nn.Module:
        """Returns the module with float weights that stands for this one."""
        raise NotImplementedError

    def _apply(self, fn, recurse=True):
        # Module.type() casts every tensor, bytes too.
        def keep_bytes(t: Tensor) -> Tensor:
            out = fn(t)
            return t.to(out.device) if t.dtype == torch.uint8 and out.dtype != torch.uint8 else out

        return super()._apply(keep_bytes, recurse)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, error_msgs):
        # Copying into uint8 would cast: 1-byte dtypes are taken as the bytes that they are, others are refused.
        for name in (key + suffix for key in self.weight_names for suffix in ("", "_scale")):
            value, parameter = state_dict.get(prefix + name), self._parameters[name]
            if value is None or value.dtype == torch.uint8 or not self._holds_bytes(name):
                continue
            if value.dtype.itemsize == 1:
                state_dict[prefix + name] = value.view(torch.uint8)
            else:
                error_msgs.append(
                    f"{type(self).__name__}: expected {prefix}{name} uint8 {list(parameter.shape)}, got {value.dtype} "
                    f"{list(value.shape)}; load it into the unquantized module and quantize that"
                )
                del state_dict[prefix + name]
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, error_msgs)


HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
)


def adopt(module: nn.Module, source: nn.Module) -> nn.Module:
    """Gives module the training mode and the hooks of the module that it replaces, and returns it."""
    module.training = source.training
    for name in HOOKS:
        module.__dict__[name] = source.__dict__[name]
    return module
