"""torch_mtl4.nn.QuantizedLinear: bytes, values, gradients, casts, copies, loads, and its errors."""

import copy
import io

import pytest
import torch
from torch import nn

from torch_mtl4 import testing
from torch_mtl4.nn import MXFP8Linear, QuantizedLinear, dequantize_linears, quantize_linears
from torch_mtl4.ops.quantized_linear import quantized_linear

FORMATS = ("mxfp4", "int4", "int8")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def layer(format, k=96, n=20, dtype=torch.float32, seed=0, **options):
    torch.manual_seed(seed)
    return QuantizedLinear(k, n, dtype=dtype, format=format, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("format", FORMATS)
def test_is_the_linear_of_its_values(format, dtype):
    module = layer(format, dtype=dtype)
    x = testing.randn(2, 3, 96, dtype=dtype)
    float_module = module.dequantize()
    truth = nn.functional.linear(x.double(), module.dequantized_weight(torch.float64), module.bias.double())
    allowed = testing.allowed_error(testing.error_of(float_module(x), truth), truth, dtype)
    testing.assert_close(module(x), truth, allowed)
    assert module(x).dtype == dtype and float_module.weight.dtype == dtype


@pytest.mark.parametrize("layout", testing.LAYOUTS)
def test_strides(layout):
    module = layer("mxfp4", k=70)
    x = testing.randn(2, 5, 70)
    testing.assert_equal(module(testing.lay_out(x, layout)), module(x))


@pytest.mark.parametrize("shape", [(96,), (0, 96), (1, 1, 96), (4, 0, 96)])
def test_shapes(shape):
    module = layer("int4")
    assert module(torch.ones(shape)).shape == (*shape[:-1], 20)


@pytest.mark.parametrize("format", FORMATS)
def test_gradients(format):
    module = layer(format)
    float_module = module.dequantize()
    inputs = [testing.randn(5, 96).requires_grad_() for _ in range(2)]
    for x, m in zip(inputs, (module, float_module), strict=True):
        m.bias.grad = None
        (m(x).square()).sum().backward()
    testing.assert_close(inputs[0].grad, inputs[1].grad, 1e-4)
    assert module.weight.requires_grad is False and module.weight_scale.requires_grad is False


def test_autocast():
    x = testing.randn(3, 96)
    module = layer("int8")
    with torch.autocast("cpu", torch.bfloat16):
        assert module(x).dtype == torch.bfloat16


@pytest.mark.parametrize("format", FORMATS)
def test_casts_change_the_bias_only(format):
    module = layer(format)
    weight, scale = module.weight.clone(), module.weight_scale.clone()
    for cast in (lambda m: m.half(), lambda m: m.float(), lambda m: m.to(torch.bfloat16), lambda m: m.type(torch.half)):
        cast(module)
        testing.assert_equal(module.weight.data, weight)
        testing.assert_equal(module.weight_scale.data, scale)
    assert module.bias.dtype == torch.half and module.float_dtype == torch.half
    assert module(torch.ones(1, 96, dtype=torch.half)).dtype == torch.half


@pytest.mark.parametrize("format", FORMATS)
def test_copies_and_files(format):
    module = layer(format)
    x = testing.randn(2, 96)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    for other in (copy.deepcopy(module), torch.load(file, weights_only=False)):
        testing.assert_equal(other(x), module(x))
    # A scale is loaded as it was saved, whatever the dtype of the module that loads it.
    other = layer(format, dtype=torch.float16, seed=1)
    other.load_state_dict(module.state_dict())
    testing.assert_equal(other.weight_scale.data, module.weight_scale.data)


def test_loading_floats_is_refused():
    with pytest.raises(RuntimeError, match="expected weight uint8"):
        layer("int4").load_state_dict(nn.Linear(96, 20).state_dict(), strict=False)
    state = layer("int8").state_dict() | {"weight_scale": torch.ones(20, 1, dtype=torch.uint8)}
    with pytest.raises(RuntimeError, match=r"expected weight_scale float32, bfloat16 or float16, got torch\.uint8"):
        layer("int8").load_state_dict(state)


def test_text():
    assert "format='mxfp4', block=32, scaling='floor'" in repr(layer("mxfp4"))
    assert "in_features=96, out_features=20, bias=True, format='int8', block=a row" in repr(layer("int8"))


def test_meta_and_from_linear():
    linear = nn.Linear(96, 20)
    assert QuantizedLinear.from_linear(nn.Linear(96, 20, device="meta")).weight.is_meta
    module = QuantizedLinear.from_linear(linear, format="int8")
    assert module.bias is linear.bias
    assert (module.dequantized_weight(torch.float32) - linear.weight).abs().max() < 1e-3
    with pytest.raises(TypeError, match=r"expected linear nn\.Linear, got Bilinear"):
        QuantizedLinear.from_linear(nn.Bilinear(2, 2, 2))
    with torch.no_grad():
        linear.weight[0, 0] = float("inf")
    with pytest.raises(ValueError, match="expected weight finite for int4, got Inf or NaN"):
        QuantizedLinear.from_linear(linear, format="int4")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, x):
        return self.down(self.up(x).relu())


@pytest.mark.parametrize("format", FORMATS)
def test_a_model_there_and_back(format):
    model = Model()
    x = testing.randn(3, 64)
    conversions = quantize_linears(model, format=format)
    assert [c.reason for c in conversions] == [None, None]
    assert {type(model.up), type(model.down)} == {QuantizedLinear} and model.up.format == format
    y = model(x)
    assert quantize_linears(model, format="mxfp8") == []
    assert dequantize_linears(model) == ["up", "down"]
    testing.assert_close(model(x), y, 1e-5)


def test_what_only_mxfp8_can_hold():
    pytest.importorskip("transformers")
    from transformers.pytorch_utils import Conv1D

    model = nn.Sequential(nn.Linear(64, 64), Conv1D(64, 64))
    import torch_mtl4.integrations.quantizer  # noqa: F401  registers the kinds of transformers

    reasons = {c.name: c.reason for c in quantize_linears(model, format="int4")}
    assert reasons == {"0": None, "1": "a Conv1D, which MXFP8 can hold but int4 cannot"}
    assert quantize_linears(nn.Sequential(nn.Linear(64, 64)), scaling=None)[0].converted


def test_exports_and_compiles():
    module = layer("int4")
    x = testing.randn(3, 96)
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: length},))
    testing.assert_equal(program.module()(testing.randn(7, 96)), module(testing.randn(7, 96)))
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert sum("quantized_linear_int4_8" in name for name in names) == 1


def failing(error, text, call):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


def test_bad_arguments():
    x = torch.ones(2, 64)
    weight, scale = torch.zeros(5, 32, dtype=torch.uint8), torch.zeros(5, 2, dtype=torch.uint8)

    def call(x=x, weight=weight, scale=scale, format="mxfp4", block=32):
        return lambda: quantized_linear(x, weight, scale, format=format, block=block)

    failing(TypeError, "quantized_linear: expected x a torch.Tensor, got list", call(x=[1]))
    failing(NotImplementedError, "expected x of dtype float32, bfloat16 or float16", call(x=x.double()))
    failing(ValueError, "expected format one of 'mxfp4', 'int4', 'int8', got 'int2'", call(format="int2"))
    failing(ValueError, "expected block a multiple of 32 for mxfp4, or 0 for a row, got 16", call(block=16))
    failing(TypeError, "expected block an int, got float", call(block=32.0))
    failing(TypeError, "expected weight of dtype uint8, got torch.int8", call(weight=weight.char()))
    failing(ValueError, "expected weight [N, 32], got [5, 31]", call(weight=weight[:, 1:]))
    failing(TypeError, "expected weight_scale of dtype uint8 for mxfp4, got torch.float32", call(scale=scale.float()))
    failing(TypeError, "float32 or bfloat16 or float16 for int4, got torch.uint8", call(format="int4"))
    failing(ValueError, "expected weight_scale [5, 2], got [5, 1]", call(scale=scale[:, :1]))
    failing(ValueError, "expected x [..., K], got []", call(x=torch.tensor(1.0)))
    failing(ValueError, "QuantizedLinear: expected format", lambda: QuantizedLinear(4, 4, format="mxfp8"))
    failing(ValueError, "quantize_linears: expected format", lambda: quantize_linears(Model(), format="int2"))
    failing(ValueError, "use QuantizedLinear.from_linear", lambda: quantize_linears(nn.Linear(2, 2), format="int4"))
    failing(ValueError, "use MXFP8Linear.from_linear", lambda: quantize_linears(nn.Linear(2, 2)))
    bad = lambda: QuantizedLinear.from_bytes(weight, scale, None, 64, torch.half, format="int4", block=32)  # noqa: E731
    failing(TypeError, "expected weight and weight_scale of int4's dtypes, got torch.uint8, torch.uint8", bad)
    bad = lambda: QuantizedLinear.from_bytes(weight, scale, None, 70, torch.half, format="mxfp4", block=32)  # noqa: E731
    failing(ValueError, "expected weight [5, 35], got [5, 32]", bad)
    assert MXFP8Linear(4, 4).weight.dtype == torch.uint8
