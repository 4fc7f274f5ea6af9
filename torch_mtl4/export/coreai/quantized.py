"""Models quantized by coreai-opt: their linear layers become modules of ours that hold the same bytes.

coreai-opt 0.4 keeps a finalized weight in a parametrization (eager mode) or in buffers of a graph (graph mode), as
the operands of coreai::constexpr_blockwise_shift_scale: data, scale, zero point, least value.
"""

import sys
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from torch_mtl4.formats import BLOCK_SIZE, FORMATS
from torch_mtl4.nn import Conversion, MXFP8Linear, QuantizedLinear
from torch_mtl4.nn.byte_weights import adopt
from torch_mtl4.nn.convert import replace_everywhere
from torch_mtl4.ops.quantized_linear import check_block

_INTEGERS = {torch.int4: "int4", torch.int8: "int8"}


class Weight(NamedTuple):
    """A weight as coreai-opt holds it, in the layout of our modules."""

    format: str
    data: Tensor
    scale: Tensor
    block: int
    in_features: int
    dtype: torch.dtype

    def linear(self, bias: nn.Parameter | None) -> MXFP8Linear | QuantizedLinear:
        if self.format == "mxfp8":
            return MXFP8Linear.from_bytes(self.data, self.scale, bias, self.dtype)
        return QuantizedLinear.from_bytes(
            self.data, self.scale, bias, self.in_features, self.dtype, format=self.format, block=self.block
        )


class _Unknown(Exception):
    """Why a weight has no kernel of ours."""


def is_quantized(model: nn.Module) -> bool:
    """Whether coreai-opt has prepared or finalized the model."""
    return any(next(_weights_of(module), None) for module in model.modules()) or bool(_graph_weights(model))


def from_coreai_opt(model: nn.Module) -> list[Conversion]:
    """Replaces linear layers that coreai-opt has quantized by modules that run our kernels on the same bytes, in place.

    MXFP8 (e4m3) becomes `torch_mtl4.nn.MXFP8Linear`; MXFP4, int4 per block or row, int8 per block, row or tensor
    become `torch_mtl4.nn.QuantizedLinear`. Everything else stays as coreai-opt left it, and Core AI dequantizes it:
    other formats (e5m2, unsigned or asymmetric integers, tables), other layers, layers whose activations are quantized.

    Args:
        model: what Quantizer.prepare(...) in eager mode or Quantizer.finalize(backend=ExportBackend.CoreAI) returned.
            One that is only prepared is finalized first, as finalize does it.

    Returns:
        A Conversion for each quantized layer: converted, or the reason why not.

    Raises:
        NotImplementedError: a graph that is prepared and not finalized.
    """
    if isinstance(model, torch.fx.GraphModule):
        return _from_graph(model)
    if any(_is_fake(p) for module in model.modules() for _, p in _weights_of(module)):
        from coreai_opt.quantization._eager._prepare_for_export import prepare_for_mlir_export

        prepare_for_mlir_export(model)
    conversions = []
    for name, module in list(model.named_modules()):
        for _, parametrization in _weights_of(module):
            reason = None
            try:
                replace_everywhere(model, module, _replacement(module, parametrization))
            except _Unknown as unknown:
                reason = str(unknown)
            conversions.append(Conversion(name, type(module).__name__, reason))
    return conversions


def _replacement(module: nn.Module, parametrization: nn.Module) -> nn.Module:
    if not isinstance(module, nn.Linear):
        raise _Unknown("only linear layers have a kernel of ours")
    if len(module.parametrizations) > 1 or len(module.parametrizations.weight) > 1:
        raise _Unknown("more than its weight is computed from other tensors")
    if list(module._modules) != ["parametrizations"]:
        raise _Unknown("its activations are quantized too")
    p = parametrization
    weight = _weight(p.quantized_data, p.scale, p.zero_point, p.minval, p.input_dtype, p.output_dtype)
    return adopt(weight.linear(module.bias), module)


def _weight(
    data: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    minval: Tensor | None,
    input_dtype: torch.dtype | None,
    output_dtype: torch.dtype | None,
) -> Weight:
    """The operands of coreai::constexpr_blockwise_shift_scale as a weight of ours."""
    packed = getattr(data, "elem", None)  # of a Float4Tensor: two elements a byte
    rows, k = data.shape
    if scale.dtype == torch.float8_e8m0fnu:
        if packed is None and data.dtype != torch.float8_e4m3fn:
            raise _Unknown(f"{str(data.dtype).removeprefix('torch.')} elements have no kernel of ours")
        if tuple(scale.shape) != (rows, -(-k // BLOCK_SIZE)):
            raise _Unknown(f"blocks of {BLOCK_SIZE} along a row are wanted, its scales are {list(scale.shape)}")
        name, codes = ("mxfp8", data.view(torch.uint8)) if packed is None else ("mxfp4", packed)
        return Weight(name, codes, scale.view(torch.uint8), BLOCK_SIZE, k, output_dtype)
    if input_dtype not in _INTEGERS:
        kind = str(input_dtype or data.dtype).removeprefix("torch.")
        raise _Unknown(f"{kind} elements with {str(scale.dtype).removeprefix('torch.')} scales have no kernel of ours")
    if minval is not None or (zero_point is not None and zero_point.any()):
        raise _Unknown("its integers are asymmetric")
    name = _INTEGERS[input_dtype]
    form, blocks = FORMATS[name], scale.shape[1]
    block = 0 if blocks == 1 else k // blocks
    if scale.shape[0] not in (1, rows) or form.scale_shape(rows, k, block=block)[1] != blocks:
        raise _Unknown(f"blocks within a row are wanted, its scales are {list(scale.shape)}")
    try:
        check_block("", form, block)
    except ValueError as error:
        raise _Unknown(str(error).removeprefix(": ")) from None
    codes = form.pack(data.to(torch.int16) % 2**form.bits)
    return Weight(name, codes, scale.expand(rows, blocks).contiguous(), block, k, scale.dtype)


def _weights_of(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Of each parameter that coreai-opt quantizes: its name, and the parametrization that does."""
    if "coreai_opt" not in sys.modules or not parametrize.is_parametrized(module):
        return
    for name, parametrizations in module.parametrizations.items():
        for parametrization in parametrizations:
            if _is_fake(parametrization) or _is_final(parametrization):
                yield name, parametrization


def _is_fake(parametrization: nn.Module) -> bool:
    from coreai_opt.quantization.spec.fake_quantize import FakeQuantizeImplBase

    return isinstance(parametrization, FakeQuantizeImplBase)


def _is_final(parametrization: nn.Module) -> bool:
    from coreai_torch._compression.custom_layers import WeightDequantizeModule

    return isinstance(parametrization, WeightDequantizeModule)


def _graph_weights(model: nn.Module) -> list[torch.fx.Node]:
    if not isinstance(model, torch.fx.GraphModule):
        return []
    name = "coreai.constexpr_blockwise_shift_scale"
    return [n for n in model.graph.nodes if n.op == "call_function" and str(n.target).startswith(name)]


def _from_graph(model: torch.fx.GraphModule) -> list[Conversion]:
    prepared = [name for name, module in model.named_modules() if "coreai_opt" in sys.modules and _is_fake(module)]
    if prepared:
        raise NotImplementedError(
            "from_coreai_opt: expected a graph that Quantizer.finalize(backend=ExportBackend.CoreAI) returned, got one "
            f"that is only prepared ({prepared[0]})"
        )
    conversions = []
    for node in _graph_weights(model):
        name = str(node.args[0].target).removesuffix("_quantized")
        reason = None
        try:
            _replace_linears(model, node, f"{name}_linear")
        except _Unknown as unknown:
            reason = str(unknown)
        else:
            model.graph.erase_node(node)
        conversions.append(Conversion(name, "aten.linear", reason))
    model.graph.eliminate_dead_code()
    model.delete_all_unused_submodules()
    model.recompile()
    return conversions


def _replace_linears(model: torch.fx.GraphModule, node: torch.fx.Node, name: str) -> None:
    def value(argument):
        return _fetch(model, argument.target) if isinstance(argument, torch.fx.Node) else argument

    operands = [*map(value, node.args), *([None] * 6)][:6]
    weight = _weight(*operands)
    if any(user.target != torch.ops.aten.linear.default for user in node.users):
        raise _Unknown("only linear layers have a kernel of ours")
    for i, linear in enumerate(list(node.users)):
        x, _, *bias = linear.args
        module = weight.linear(value(bias[0]) if bias and bias[0] is not None else None)
        target = name if i == 0 else f"{name}_{i}"
        model.add_submodule(target, module)
        with model.graph.inserting_before(linear):
            call = model.graph.call_module(target, (x,))
        call.meta = dict(linear.meta)
        linear.replace_all_uses_with(call)
        model.graph.erase_node(linear)


def _fetch(model: nn.Module, target: str):
    for part in target.split("."):
        model = getattr(model, part)
    return model
