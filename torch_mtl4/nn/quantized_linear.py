"""torch_mtl4.nn.QuantizedLinear: a linear layer whose weight is stored in blocks of 4 or 8 bits."""

import torch
from torch import Tensor, nn

from torch_mtl4 import _calls
from torch_mtl4.nn.byte_linear import ByteLinear, check_float_weight, check_is_linear
from torch_mtl4.nn.byte_weights import check_scaling, empty_bytes, frozen
from torch_mtl4.ops.quantized_linear import check_block, check_format, quantized_linear

DEFAULT_SCALING = "floor"


class QuantizedLinear(ByteLinear):
    """Applies a linear layer whose weight is stored as MXFP4, or as integers of 4 or 8 bits with float scales.

    y = x @ dequantize(weight, weight_scale).T + bias

    The weight is frozen; gradients reach x and bias. Casts (`.half()`, `.to(dtype)`) change the bias and leave bytes
    and scales as they are.

    Args:
        in_features: K, any size; the last block of a row may be shorter.
        out_features: N.
        bias: whether there is a bias [N].
        device: of the parameters; "meta" allocates nothing.
        dtype: of the bias, of float scales and of `dequantize()`; torch's default dtype if None.
        format: "mxfp4" (e2m1 elements, e8m0 scales), "int4" or "int8" (two's complement, float scales).
        block: elements along K that share a scale, 0 for a row; None is 32 for the formats of 4 bits, 0 for "int8".
        scaling: how e8m0 scales are chosen, see `torch_mtl4.mxfp8_quantize`; "floor" loses least with e2m1.

    Attributes:
        weight: uint8 [N, K] or, two elements of 4 bits in a byte with the even one low, [N, ceil(K/2)].
        weight_scale: [N, ceil(K/block)], uint8 e8m0 bytes or floats.
        bias: float [N] or None.

    Raises:
        ValueError: an unknown format or scaling, a block that the kernel does not know.

    Source: torch_mtl4/formats/block.py.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        dtype: torch.dtype | None = None,
        *,
        format: str = "mxfp4",
        block: int | None = None,
        scaling: str = DEFAULT_SCALING,
    ):
        nn.Module.__init__(self)
        self.in_features = in_features
        self.out_features = out_features
        self._format = check_format(type(self).__name__, format)
        self.block = self._format.block if block is None else block
        check_block(type(self).__name__, self._format, self.block)
        self.scaling = check_scaling(type(self).__name__, scaling)
        self._init_float_dtype(dtype, device)
        shape = (out_features, in_features)
        self.weight = empty_bytes(*self._format.data_shape(*shape), device=device)
        scale_dtype = self._format.scale_dtype or self.float_dtype
        scale_shape = self._format.scale_shape(*shape, block=self.block)
        self.weight_scale = frozen(torch.empty(scale_shape, dtype=scale_dtype, device=device))
        self._init_bias(bias, device, dtype)
        self.reset_parameters()

    @property
    def format(self) -> str:
        """ "mxfp4", "int4" or "int8"."""
        return self._format.name

    @classmethod
    def from_linear(
        cls, linear: nn.Linear, *, format: str = "mxfp4", block: int | None = None, scaling: str = DEFAULT_SCALING
    ) -> "QuantizedLinear":
        """Quantizes an nn.Linear.

        Args:
            linear: weight [N, K], float32, bfloat16 or float16. It is not changed; its bias parameter is shared.
            format, block, scaling: as of the class.

        Returns:
            A module of the same features, device, training mode and hooks; on the meta device an empty one.

        Raises:
            TypeError: linear is not exactly an nn.Linear, or its weight has another dtype.
            ValueError: a weight that is not finite, for integers.
        """
        check_is_linear(cls.__name__, linear)
        weight = linear.weight
        check_float_weight(cls.__name__, weight)
        module = cls(
            linear.in_features, linear.out_features, False, "meta", weight.dtype, format=format, block=block,
            scaling=scaling,
        )  # fmt: skip
        if not weight.is_meta and module._format.element is None and not weight.isfinite().all():
            raise ValueError(f"{cls.__name__}: expected weight finite for {format}, got Inf or NaN")
        return module._stand_for(linear)

    @classmethod
    def from_bytes(
        cls, weight: Tensor, weight_scale: Tensor, bias: nn.Parameter | None, in_features: int, dtype: torch.dtype,
        *, format: str, block: int,
    ) -> "QuantizedLinear":  # fmt: skip
        """A layer of bytes and scales that are there already. It holds these tensors, not copies of them.

        Args:
            weight, weight_scale, bias: as the attributes of the class.
            in_features: K.
            dtype: of `dequantize()`.
            format, block: as of the class.

        Raises:
            TypeError, ValueError: bytes or scales of another dtype or shape.
        """
        module = cls(in_features, weight.shape[0], False, "meta", dtype, format=format, block=block)
        if weight.dtype != torch.uint8 or (weight_scale.dtype == torch.uint8) != (module._format.element is not None):
            raise TypeError(
                f"{cls.__name__}: expected weight and weight_scale of {format}'s dtypes, got {weight.dtype}, "
                f"{weight_scale.dtype}"
            )
        module._hold(weight, weight_scale, dtype)
        module.bias = bias
        return module

    def _holds_bytes(self, name: str) -> bool:
        return name == "weight" or self._format.element is not None

    def quantized(self, weight: Tensor) -> dict[str, Tensor]:
        data, scale = self._format.quantize(weight.detach(), self.block, self.scaling)
        return {"": data, "_scale": scale}

    @torch.no_grad()
    def dequantized_weight(self, dtype: torch.dtype) -> Tensor:
        """The values of the weight [N, K] in dtype."""
        if self.weight.is_meta:
            return torch.empty(self.out_features, self.in_features, dtype=dtype, device="meta")
        return self._format.dequantize(self.weight, self.weight_scale, self.in_features, self.block).to(dtype)

    def forward(self, input: Tensor) -> Tensor:
        _calls.record(self)
        out = quantized_linear(input, self.weight, self.weight_scale, format=self.format, block=self.block)
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def _apply(self, fn, recurse=True):
        scale = self.weight_scale.data
        super()._apply(fn, recurse)
        if self.weight_scale.dtype != scale.dtype:  # a cast: the bytes are multiples of the scales as they were
            self.weight_scale = frozen(scale.to(self.weight_scale.device))
        return self

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, error_msgs):
        scale = state_dict.get(prefix + "weight_scale")
        if scale is not None and self._format.element is None and scale.dtype != self.weight_scale.dtype:
            if scale.is_floating_point() and scale.dtype.itemsize > 1:
                # Copying would round.
                self.weight_scale = frozen(torch.empty_like(self.weight_scale, dtype=scale.dtype))
            else:
                error_msgs.append(
                    f"{type(self).__name__}: expected {prefix}weight_scale float32, bfloat16 or float16, got "
                    f"{scale.dtype}"
                )
                del state_dict[prefix + "weight_scale"]
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, error_msgs)

    def extra_repr(self) -> str:
        block = "a row" if self.block == 0 else self.block
        scaling = f", scaling={self.scaling!r}" if self._format.element is not None else ""
        return f"{super().extra_repr()}, format={self.format!r}, block={block}{scaling}"
