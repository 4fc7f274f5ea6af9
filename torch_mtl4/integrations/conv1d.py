"""MXFP8 weights for transformers' Conv1D (GPT-2 and its kin): a linear layer whose weight is stored [K, N]."""

from torch import Tensor, nn

from torch_mtl4.nn.byte_weights import adopt
from torch_mtl4.nn.convert import Kind
from torch_mtl4.nn.mxfp8_linear import MXFP8Linear


class MXFP8Conv1D(MXFP8Linear):
    """An MXFP8Linear made from a Conv1D, and `dequantize()`d to one. Its own weight is [N, K] as ever."""

    @classmethod
    def from_conv1d(cls, conv: nn.Module, *, scaling: str = "rceil") -> "MXFP8Conv1D":
        """Quantizes a Conv1D with weight [K, N].

        Raises:
            TypeError: conv is another sort of module.
        """
        if not conv1d_weights(conv):
            raise TypeError(f"{cls.__name__}.from_conv1d: expected conv Conv1D, got {type(conv).__name__}")
        return cls._from(conv, *conv.weight.shape, scaling)

    def quantized(self, weight: Tensor) -> dict[str, Tensor]:
        return super().quantized(weight.t().contiguous())

    def dequantize(self, dtype=None) -> nn.Module:
        from transformers.pytorch_utils import Conv1D

        linear = super().dequantize(dtype)
        conv = Conv1D(0, 0)
        conv.nf, conv.nx = self.out_features, self.in_features
        conv.weight = nn.Parameter(linear.weight.detach().t().contiguous())
        conv.bias = linear.bias
        return adopt(conv, self)


def conv1d_weights(module: nn.Module) -> tuple[str, ...]:
    """("weight",) if the module is exactly a Conv1D of transformers, which need not be imported, else ()."""
    cls = type(module)
    return ("weight",) if (cls.__module__, cls.__name__) == ("transformers.pytorch_utils", "Conv1D") else ()


CONV1D = Kind(conv1d_weights, lambda module, scaling: MXFP8Conv1D.from_conv1d(module, scaling=scaling))
