"""torch_mtl4.nn.MXFP8Linear: a linear layer whose weight is stored as MXFP8 bytes."""

import torch
from torch import Tensor, nn

from torch_mtl4 import _calls
from torch_mtl4.nn.byte_weights import ByteWeights, adopt, check_scaling, empty_bytes, frozen, scale_shape
from torch_mtl4.ops.mxfp8 import mxfp8_dequantize, mxfp8_linear


class MXFP8Linear(ByteWeights, nn.Linear):
    """Applies a linear layer whose weight is stored in MXFP8: e4m3 bytes and one e8m0 scale byte for 32 values.

    y = x @ dequantize(weight, weight_scale).T + bias

    The weight is frozen; gradients reach x and bias. Casts (`.half()`, `.to(dtype)`) change the bias and leave the
    bytes as they are. A subclass of nn.Linear, because adapters (PEFT) wrap nothing else; to merge them into the bytes
    use `torch_mtl4.integrations.peft.merge_and_unload`.

    Args:
        in_features: K, any size; the last block of a row may be shorter than 32.
        out_features: N.
        bias: whether there is a bias [N].
        device: of the parameters; "meta" allocates nothing.
        dtype: of the bias and of `dequantize()`; torch's default dtype if None.
        scaling: how scales are chosen, "floor", "rceil", "ceil" or "even", see `torch_mtl4.mxfp8_quantize`.

    Attributes:
        weight: uint8 [N, K], e4m3 bytes.
        weight_scale: uint8 [N, ceil(K/32)], e8m0 bytes.
        bias: float [N] or None.

    Raises:
        ValueError: scaling is not one of the four words.

    Source: OCP Microscaling Formats (MX) v1.0, 5.1 and 6.3.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        dtype: torch.dtype | None = None,
        *,
        scaling: str = "rceil",
    ):
        nn.Module.__init__(self)
        self.in_features = in_features
        self.out_features = out_features
        self.scaling = check_scaling(type(self).__name__, scaling)
        self.weight = empty_bytes(out_features, in_features, device=device)
        self.weight_scale = empty_bytes(*scale_shape(out_features, in_features), device=device)
        if bias:
            self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self._init_float_dtype(dtype, device)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws the weights that nn.Linear would draw, and quantizes them."""
        if self.weight.is_meta:
            return
        bias = self.bias is not None
        fresh = nn.Linear(self.in_features, self.out_features, bias, self.weight.device, torch.float32)
        for suffix, values in self.quantized(fresh.weight).items():
            self._parameters["weight" + suffix].copy_(values)
        if bias:
            self.bias.copy_(fresh.bias)

    @classmethod
    def from_linear(cls, linear: nn.Linear, *, scaling: str = "rceil") -> "MXFP8Linear":
        """Quantizes an nn.Linear.

        Args:
            linear: weight [N, K], float32, bfloat16 or float16. It is not changed; its bias parameter is shared.
            scaling: see `torch_mtl4.mxfp8_quantize`.

        Returns:
            A module of the same features, device, training mode and hooks; on the meta device an empty one.

        Raises:
            TypeError: linear is not exactly an nn.Linear, or its weight has another dtype.
        """
        if type(linear) is not nn.Linear:
            raise TypeError(f"{cls.__name__}.from_linear: expected linear nn.Linear, got {type(linear).__name__}")
        return cls._from(linear, linear.in_features, linear.out_features, scaling)

    @classmethod
    def _from(cls, source: nn.Module, in_features: int, out_features: int, scaling: str):
        weight = source.weight
        if weight.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise TypeError(f"{cls.__name__}: expected weight float32, bfloat16 or float16, got {weight.dtype}")
        module = cls(in_features, out_features, False, "meta", weight.dtype, scaling=scaling)
        if not weight.is_meta:
            for suffix, values in module.quantized(weight).items():
                setattr(module, "weight" + suffix, frozen(values))
            module._init_float_dtype(weight.dtype, weight.device)
        module.bias = source.bias
        return adopt(module, source)

    @classmethod
    def from_bytes(
        cls, weight: Tensor, weight_scale: Tensor, bias: nn.Parameter | None, dtype: torch.dtype
    ) -> "MXFP8Linear":
        """A layer of bytes that are there already. It holds these tensors, not copies of them.

        Args:
            weight, weight_scale, bias: as the attributes of the class.
            dtype: of `dequantize()`.

        Raises:
            TypeError, ValueError: bytes of another dtype or shape.
        """
        out_features, in_features = weight.shape
        module = cls(in_features, out_features, False, "meta", dtype)
        for name, given in (("weight", weight), ("weight_scale", weight_scale)):
            made = module._parameters[name]
            if given.dtype != torch.uint8:
                raise TypeError(f"{cls.__name__}: expected {name} uint8, got {given.dtype}")
            if given.shape != made.shape:
                raise ValueError(f"{cls.__name__}: expected {name} {list(made.shape)}, got {list(given.shape)}")
            setattr(module, name, frozen(given))
        module._init_float_dtype(dtype, weight.device)
        module.bias = bias
        return module

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

    @torch.no_grad()
    def dequantized_weight(self, dtype: torch.dtype) -> Tensor:
        """The values of the weight [N, K] in dtype."""
        if self.weight.is_meta:
            return torch.empty_like(self.weight, dtype=dtype)
        return mxfp8_dequantize(self.weight, self.weight_scale, dtype=dtype)

    def _bias_in(self, dtype: torch.dtype) -> nn.Parameter | None:
        if self.bias is None or self.bias.dtype == dtype:
            return self.bias
        return nn.Parameter(self.bias.detach().to(dtype), requires_grad=self.bias.requires_grad)

    def forward(self, input: Tensor) -> Tensor:
        _calls.record(self)
        return mxfp8_linear(input, self.weight, self.weight_scale, self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scaling={self.scaling!r}"
