"""What linear layers with byte weights share: how they begin, and the ways from an nn.Linear and back to it."""

import torch
from torch import Tensor, nn

from torch_mtl4.nn.byte_weights import ByteWeights, adopt, frozen

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def check_is_linear(where: str, linear: nn.Module) -> None:
    """Raises if linear is not exactly an nn.Linear: a subclass may compute something else."""
    if type(linear) is not nn.Linear:
        raise TypeError(f"{where}.from_linear: expected linear nn.Linear, got {type(linear).__name__}")


def check_float_weight(where: str, weight: Tensor) -> None:
    """Raises if a weight has a dtype that is not quantized."""
    if weight.dtype not in FLOATS:
        raise TypeError(f"{where}: expected weight float32, bfloat16 or float16, got {weight.dtype}")


class ByteLinear(ByteWeights, nn.Linear):
    """A linear layer whose weight is bytes with scales.

    A subclass of nn.Linear, because adapters (PEFT) wrap nothing else.
    """

    def _init_bias(self, bias: bool, device, dtype: torch.dtype | None) -> None:
        empty = torch.empty(self.out_features, device=device, dtype=dtype) if bias else None
        self.register_parameter("bias", None if empty is None else nn.Parameter(empty))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws the weights that nn.Linear would draw, and quantizes them."""
        if self.weight.is_meta:
            return
        bias = self.bias is not None
        fresh = nn.Linear(self.in_features, self.out_features, bias, self.weight.device, torch.float32)
        for suffix, values in self.quantized(fresh.weight.to(self.float_dtype)).items():
            self._parameters["weight" + suffix].copy_(values)
        if bias:
            self.bias.copy_(fresh.bias)

    def _hold(self, weight: Tensor, weight_scale: Tensor, dtype: torch.dtype) -> None:
        """Takes bytes and scales that stand for values of dtype."""
        for name, given in (("weight", weight), ("weight_scale", weight_scale)):
            if given.shape != (made := self._parameters[name]).shape:
                where = type(self).__name__
                raise ValueError(f"{where}: expected {name} {list(made.shape)}, got {list(given.shape)}")
        self.weight, self.weight_scale = frozen(weight), frozen(weight_scale)
        self._init_float_dtype(dtype, weight.device)

    def _stand_for(self, source: nn.Module) -> nn.Module:
        """Takes the weight, bias, mode and hooks of a float layer; itself it was made on the meta device."""
        weight = source.weight
        if not weight.is_meta:
            quantized = self.quantized(weight)
            self._hold(quantized[""], quantized["_scale"], weight.dtype)
        self.bias = source.bias
        return adopt(self, source)

    def dequantized_weight(self, dtype: torch.dtype) -> Tensor:
        """The values of the weight [N, K] in dtype."""
        raise NotImplementedError

    def dequantize(self, dtype: torch.dtype | None = None) -> nn.Module:
        """Returns the nn.Linear whose weight has the values of the bytes.

        Args:
            dtype: of its parameters; `float_dtype` if None. The bias parameter is shared where its dtype allows.
        """
        dtype = self.float_dtype if dtype is None else dtype
        linear = nn.Linear(self.in_features, self.out_features, bias=False, device="meta", dtype=dtype)
        linear.weight = nn.Parameter(self.dequantized_weight(dtype))
        linear.bias = self._bias_in(dtype)
        return adopt(linear, self)

    def _bias_in(self, dtype: torch.dtype) -> nn.Parameter | None:
        if self.bias is None or self.bias.dtype == dtype:
            return self.bias
        return nn.Parameter(self.bias.detach().to(dtype), requires_grad=self.bias.requires_grad)
