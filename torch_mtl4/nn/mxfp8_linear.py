"""torch_mtl4.nn.MXFP8Linear: a linear layer whose weight is stored as MXFP8 bytes."""

import torch
from torch import Tensor, nn

from torch_mtl4 import _calls
from torch_mtl4.nn.byte_linear import ByteLinear, check_float_weight, check_is_linear
from torch_mtl4.nn.byte_weights import check_scaling, empty_bytes, scale_shape
from torch_mtl4.ops.mxfp8 import mxfp8_dequantize, mxfp8_linear


class MXFP8Linear(ByteLinear):
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
        self._init_bias(bias, device, dtype)
        self._init_float_dtype(dtype, device)
        self.reset_parameters()

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
        check_is_linear(cls.__name__, linear)
        return cls._from(linear, linear.in_features, linear.out_features, scaling)

    @classmethod
    def _from(cls, source: nn.Module, in_features: int, out_features: int, scaling: str):
        check_float_weight(cls.__name__, source.weight)
        module = cls(in_features, out_features, False, "meta", source.weight.dtype, scaling=scaling)
        return module._stand_for(source)

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
            if given.dtype != torch.uint8:
                raise TypeError(f"{cls.__name__}: expected {name} uint8, got {given.dtype}")
        module._hold(weight, weight_scale, dtype)
        module.bias = bias
        return module

    @torch.no_grad()
    def dequantized_weight(self, dtype: torch.dtype) -> Tensor:
        """The values of the weight [N, K] in dtype."""
        if self.weight.is_meta:
            return torch.empty_like(self.weight, dtype=dtype)
        return mxfp8_dequantize(self.weight, self.weight_scale, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        _calls.record(self)
        return mxfp8_linear(input, self.weight, self.weight_scale, self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scaling={self.scaling!r}"
