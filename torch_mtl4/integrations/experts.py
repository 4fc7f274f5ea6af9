"""MXFP8 weights for the stacked experts of transformers: parameters [E, N, K] in place of a list of linears."""

import torch
from torch import Tensor, nn

from torch_mtl4 import _calls
from torch_mtl4.nn.byte_weights import ByteWeights, adopt, check_scaling, empty_bytes, frozen, scale_shape
from torch_mtl4.nn.convert import Kind
from torch_mtl4.ops.mxfp8 import mxfp8_dequantize, mxfp8_linear, mxfp8_quantize


class MXFP8Experts(ByteWeights):
    """The experts of a mixture-of-experts layer, each with its up and down weight in MXFP8.

    out[t] = sum over k of top_k_weights[t, k] * down_e(gate(up_e(hidden_states[t]))),  e = top_k_index[t, k]

    Made from a transformers module by `from_experts`, whose settings, gate function and layout it takes over. An index
    of E or more stands for an expert that lives elsewhere and adds nothing.

    Attributes:
        gate_up_proj, or up_proj where there is no gate: uint8 [E, N, K], also where the source is stored [E, K, N].
        gate_up_proj_scale: uint8 [E, N, ceil(K/32)].
        down_proj, down_proj_scale: the same.
        gate_up_proj_bias, down_proj_bias: float [E, N], where the source has them.
    """

    def __init__(self, source: nn.Module, *, scaling: str = "rceil"):
        super().__init__()
        self.scaling = check_scaling(type(self).__name__, scaling)
        self.source_class = type(source)
        self.settings = {name: value for name, value in vars(source).items() if name not in vars(nn.Module())}
        for name, value in (*self.settings.items(), *source.named_children()):
            setattr(self, name, value)
        self.weight_names = self.up_name, self.down_name = expert_weights(source)
        self.source_is_transposed = is_transposed(source)
        first = source._parameters[self.up_name]
        for name in self.weight_names:
            shape = self._stored(source._parameters[name]).shape
            self.register_parameter(name, empty_bytes(*shape, device="meta"))
            self.register_parameter(f"{name}_scale", empty_bytes(*scale_shape(*shape), device="meta"))
            self.register_parameter(f"{name}_bias", source._parameters.get(f"{name}_bias"))
        self._init_float_dtype(first.dtype, first.device)

    @classmethod
    def from_experts(cls, source: nn.Module, *, scaling: str = "rceil") -> "MXFP8Experts":
        """Quantizes a module of stacked experts.

        Args:
            source: a module that `expert_weights` knows. It is not changed; biases and submodules are shared.
            scaling: see `torch_mtl4.mxfp8_quantize`.

        Raises:
            TypeError: source is another sort of module.
        """
        if not expert_weights(source):
            raise TypeError(
                f"{cls.__name__}.from_experts: expected source with stacked experts, got {type(source).__name__}"
            )
        module = cls(source, scaling=scaling)
        for name in module.weight_names:
            if not source._parameters[name].is_meta:
                for suffix, values in module.quantized(source._parameters[name]).items():
                    setattr(module, name + suffix, frozen(values))
        return adopt(module, source)

    def quantized(self, weight: Tensor) -> dict[str, Tensor]:
        weight = self._stored(weight.detach())
        data = torch.empty(weight.shape, dtype=torch.uint8, device=weight.device)
        scale = torch.empty(scale_shape(*weight.shape), dtype=torch.uint8, device=weight.device)
        for expert, values in enumerate(weight):
            data[expert], scale[expert] = mxfp8_quantize(values.contiguous(), scaling=self.scaling)
        return {"": data, "_scale": scale}

    def _stored(self, weight: Tensor) -> Tensor:
        return weight.transpose(-1, -2) if self.source_is_transposed else weight

    @torch.no_grad()
    def dequantize(self, dtype: torch.dtype | None = None) -> nn.Module:
        """Returns a module of the source's class with float weights of the same values."""
        dtype = self.float_dtype if dtype is None else dtype
        module = self.source_class.__new__(self.source_class)
        nn.Module.__init__(module)
        for name, value in (*self.settings.items(), *self.named_children()):
            setattr(module, name, value)
        for name in self.weight_names:
            weight = self._stored(self._dequantized(name, dtype)).contiguous()
            module.register_parameter(name, nn.Parameter(weight))
            bias = self._parameters[f"{name}_bias"]
            if bias is not None:
                module.register_parameter(f"{name}_bias", bias if bias.dtype == dtype else nn.Parameter(bias.to(dtype)))
        return adopt(module, self)

    def _dequantized(self, name: str, dtype: torch.dtype) -> Tensor:
        data = self._parameters[name]
        if data.is_meta:
            return torch.empty_like(data, dtype=dtype)
        return mxfp8_dequantize(data, self.scale_of(name), dtype=dtype)

    def forward(
        self,
        hidden_states: Tensor,
        top_k_index: Tensor | None = None,
        top_k_weights: Tensor | None = None,
        *,
        router_indices: Tensor | None = None,
        routing_weights: Tensor | None = None,
    ) -> Tensor:
        _calls.record(self)
        # The last two are what gpt-oss calls the routing.
        top_k_index = router_indices if top_k_index is None else top_k_index
        top_k_weights = routing_weights if top_k_weights is None else top_k_weights
        experts = self._parameters[self.up_name].shape[0]
        shape, hidden_states = hidden_states.shape, hidden_states.flatten(0, -2)
        # A slot for each choice, summed at the end: the order of the sum does not depend on the order of the experts.
        slots = hidden_states.new_zeros(*top_k_index.shape, hidden_states.shape[-1])
        for expert in top_k_index.unique().tolist():
            if expert >= experts:
                continue
            token, choice = torch.where(top_k_index == expert)
            out = self._gate(self._project(self.up_name, expert, hidden_states[token]))
            out = self._project(self.down_name, expert, out)
            if getattr(self, "has_post_expert_norm", False):
                out = self.post_expert_norm(out)
            weight = top_k_weights[token, expert if self._weights_by_expert else choice, None]
            slots[token, choice] = (out * weight).to(slots.dtype)
        return slots.sum(dim=1).reshape(shape)

    def _project(self, name: str, expert: int, x: Tensor) -> Tensor:
        bias = self._parameters[f"{name}_bias"]
        return mxfp8_linear(
            x,
            self._parameters[name][expert],
            self.scale_of(name)[expert],
            None if bias is None else bias[expert],
        )

    def _gate(self, x: Tensor) -> Tensor:
        if self.up_name == "up_proj":
            return self.act_fn(x)
        gate = getattr(self.source_class, "_apply_gate", clamped_gate)
        return gate(self, x)

    @property
    def _weights_by_expert(self) -> bool:
        """transformers 4 passes gpt-oss the weights of all experts [tokens, E], zero where an expert is not chosen."""
        return not hasattr(self.source_class, "_apply_gate")

    def extra_repr(self) -> str:
        shapes = ", ".join(f"{n}={list(self._parameters[n].shape)}" for n in self.weight_names)
        return f"{self.source_class.__name__}, {shapes}, scaling={self.scaling!r}"


def clamped_gate(experts: nn.Module, x: Tensor) -> Tensor:
    """(up + 1) * gate * sigmoid(alpha * gate) with both clamped, for gate and up in alternating columns.

    Source: gpt-oss model card, OpenAI 2025: a SwiGLU with clamping and a residual connection.
    """
    gate = x[..., ::2].clamp(max=experts.limit)
    up = x[..., 1::2].clamp(-experts.limit, experts.limit)
    return (up + 1) * gate * torch.sigmoid(gate * experts.alpha)


def _is_gpt_oss_of_transformers_4(module: nn.Module) -> bool:
    return type(module).__name__ == "GptOssExperts" and not hasattr(module, "_apply_gate")


def is_transposed(module: nn.Module) -> bool:
    """Whether the weights of stacked experts are stored [E, K, N]."""
    return getattr(module, "is_transposed", False) or _is_gpt_oss_of_transformers_4(module)


def expert_weights(module: nn.Module) -> tuple[str, ...]:
    """The names of the up and down weights if the module has stacked experts of a layout that is known, else ().

    Known are the classes that transformers 5 lets an experts implementation compute, which say how they are laid out,
    and gpt-oss of transformers 4.
    """
    known = all(hasattr(module, name) for name in ("has_gate", "has_bias", "is_transposed", "_apply_gate"))
    if isinstance(module, ByteWeights) or not (known or _is_gpt_oss_of_transformers_4(module)):
        return ()
    up = "gate_up_proj" if getattr(module, "has_gate", True) else "up_proj"
    weights = [module._parameters.get(name) for name in (up, "down_proj")]
    return (up, "down_proj") if all(w is not None and w.ndim == 3 for w in weights) else ()


EXPERTS = Kind(expert_weights, lambda module, scaling: MXFP8Experts.from_experts(module, scaling=scaling))
