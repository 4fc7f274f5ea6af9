"""MXFP8Linear: a module like any other, whose bytes survive whatever is done to modules."""

import copy
import pickle

import pytest
import torch
from torch import nn

import torch_mtl4
from torch_mtl4.nn import MXFP8Linear

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def linear(k=70, n=50, bias=True, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(k, n, bias=bias, dtype=dtype)


def quantized(**kwargs):
    return MXFP8Linear.from_linear(linear(**kwargs))


def rows(k, dtype=torch.float32, shape=(3, 5)):
    return torch.randn(*shape, k, generator=torch.Generator().manual_seed(7)).to(dtype)


def same_bytes(a, b):
    return torch.equal(a.weight, b.weight) and torch.equal(a.weight_scale, b.weight_scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 31, 32, 70, 96])
@pytest.mark.parametrize("scaling", ["floor", "rceil", "ceil", "even"])
def test_holds_what_the_ops_compute(k, scaling, dtype):
    source = linear(k=k, dtype=dtype)
    module = MXFP8Linear.from_linear(source, scaling=scaling)
    data, scale = torch_mtl4.mxfp8_quantize(source.weight.detach(), scaling=scaling)
    assert torch.equal(module.weight, data) and torch.equal(module.weight_scale, scale)
    assert module.weight_scale.shape == (50, (k + 31) // 32)
    x = rows(k, dtype)
    assert torch.equal(module(x), torch_mtl4.mxfp8_linear(x, data, scale, source.bias))
    assert (module.in_features, module.out_features, module.scaling) == (k, 50, scaling)
    assert module.float_dtype == dtype
    assert module.bias is source.bias


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 1), (4, 2, 3)])
def test_any_leading_shape(shape):
    module = quantized()
    x = rows(70, shape=shape)
    assert torch.equal(module(x), module(x.reshape(-1, 70)).reshape(*shape, 50))


@pytest.mark.parametrize("bias", [True, False])
def test_dequantize_gives_the_values_of_the_bytes(bias):
    module = quantized(bias=bias, dtype=torch.bfloat16)
    back = module.dequantize()
    assert type(back) is nn.Linear
    expected = torch_mtl4.mxfp8_dequantize(module.weight, module.weight_scale, dtype=torch.bfloat16)
    assert torch.equal(back.weight, expected) and back.weight.requires_grad
    assert back.bias is module.bias
    wide = module.dequantize(torch.float32)
    assert torch.equal(wide.weight, expected.float())
    assert (wide.bias is not None) == bias and (not bias or wide.bias.dtype == torch.float32)
    assert torch.equal(MXFP8Linear.from_linear(wide).dequantize().weight, wide.weight)


@pytest.mark.parametrize(
    "cast",
    [
        lambda m, d: m.to(d),
        lambda m, d: m.type(d),
        lambda m, d: m.half() if d == torch.float16 else m.bfloat16(),
        lambda m, d: nn.Sequential(m).to("cpu", d)[0],
    ],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_casts_leave_bytes_alone(cast, dtype):
    module, twin = quantized(), quantized()
    module = cast(module, dtype)
    assert module.weight.dtype == module.weight_scale.dtype == torch.uint8
    assert same_bytes(module, twin)
    assert module.bias.dtype == module.float_dtype == module.dequantize().weight.dtype == dtype
    assert module(rows(70, dtype)).dtype == dtype


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_survives_copies(how, tmp_path):
    module = quantized(dtype=torch.bfloat16).eval()
    if how == "deepcopy":
        twin = copy.deepcopy(module)
    elif how == "pickle":
        twin = pickle.loads(pickle.dumps(module))
    else:
        torch.save(module, tmp_path / "m.pt")
        twin = torch.load(tmp_path / "m.pt", weights_only=False)
    assert type(twin) is MXFP8Linear and same_bytes(module, twin) and not twin.training
    assert twin.float_dtype == torch.bfloat16 and twin.scaling == "rceil"
    assert twin.weight.data_ptr() != module.weight.data_ptr()
    x = rows(70, torch.bfloat16)
    assert torch.equal(module(x), twin(x))


def test_state_dict_is_bytes_and_loads_strictly():
    module, other = quantized(seed=1), quantized(seed=2)
    state = module.state_dict()
    assert list(state) == ["weight", "weight_scale", "bias"]
    other.load_state_dict(state, strict=True)
    assert same_bytes(module, other)
    meta = MXFP8Linear(70, 50, device="meta")
    meta.load_state_dict(state, strict=True, assign=True)
    assert same_bytes(module, meta) and not meta.weight.requires_grad


def test_loads_float8_tensors_as_their_bytes():
    module, other = quantized(seed=1), quantized(seed=2)
    state = module.state_dict()
    state["weight"] = state["weight"].view(torch.float8_e4m3fn)
    state["weight_scale"] = state["weight_scale"].view(torch.float8_e8m0fnu)
    other.load_state_dict(state)
    assert same_bytes(module, other)
    assert state["weight"].dtype == torch.float8_e4m3fn


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("assign", [True, False])
def test_refuses_to_load_float_weights(strict, assign):
    module = quantized()
    before = copy.deepcopy(module)
    with pytest.raises(RuntimeError, match=r"expected weight uint8 \[50, 70\], got torch.float32 \[50, 70\]"):
        module.load_state_dict(linear().state_dict(), strict=strict, assign=assign)
    assert same_bytes(module, before)


def test_meta_device_allocates_nothing_and_materializes():
    module = MXFP8Linear(70, 50, device="meta", dtype=torch.bfloat16)
    assert all(t.is_meta for t in module.state_dict().values())
    assert module(torch.empty(2, 70, device="meta", dtype=torch.bfloat16)).shape == (2, 50)
    assert MXFP8Linear.from_linear(nn.Linear(70, 50, device="meta")).weight.is_meta
    assert module.dequantize().weight.is_meta
    real = module.to_empty(device="cpu")
    real.load_state_dict(quantized(dtype=torch.bfloat16).state_dict())
    assert same_bytes(real, quantized(dtype=torch.bfloat16))


def test_constructor_draws_usable_weights():
    torch.manual_seed(0)
    module = MXFP8Linear(64, 32)
    spread = module.dequantize().weight.abs().max()
    assert 0 < spread <= 1.1 / 64**0.5
    before = copy.deepcopy(module)
    module.reset_parameters()
    assert not same_bytes(module, before)


def test_gradients_reach_input_and_bias_and_the_weight_is_frozen():
    module = quantized()
    x = rows(70).requires_grad_()
    module(x).square().sum().backward()
    twin, y = module.dequantize(), x.detach().clone().requires_grad_()
    twin.bias = nn.Parameter(module.bias.detach().clone())
    twin(y).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(module.bias.grad, twin.bias.grad)
    assert [n for n, p in module.named_parameters() if p.requires_grad] == ["bias"]
    with pytest.raises(RuntimeError):
        module.weight.requires_grad_()


def test_input_errors_are_those_of_the_op():
    module = quantized()
    with pytest.raises(Exception, match="mxfp8_linear: expected"):
        module(rows(64))
    with pytest.raises(Exception, match="mxfp8_linear: expected"):
        module(torch.ones(2, 70, dtype=torch.int32))


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"MXFP8Linear: expected scaling 'floor', .*, got 'round'"):
        MXFP8Linear(4, 4, scaling="round")
    with pytest.raises(TypeError, match=r"expected linear nn\.Linear, got MXFP8Linear"):
        MXFP8Linear.from_linear(quantized())
    with pytest.raises(TypeError, match=r"expected linear nn\.Linear, got Conv2d"):
        MXFP8Linear.from_linear(nn.Conv2d(1, 1, 1))
    with pytest.raises(TypeError, match=r"expected weight float32, bfloat16 or float16, got torch.float64"):
        MXFP8Linear.from_linear(nn.Linear(4, 4, dtype=torch.float64))


def test_says_what_it_is():
    assert repr(quantized(bias=False)) == "MXFP8Linear(in_features=70, out_features=50, bias=False, scaling='rceil')"
    assert isinstance(quantized(), nn.Linear)


def test_keeps_mode_and_hooks_of_the_linear():
    source = linear().eval()
    source.register_forward_hook(lambda module, args, out: out + 1)
    module = MXFP8Linear.from_linear(source)
    x = rows(70)
    assert not module.training
    assert torch.equal(module(x), torch_mtl4.mxfp8_linear(x, module.weight, module.weight_scale, module.bias) + 1)


def test_compiles_in_one_graph():
    module = nn.Sequential(quantized(), nn.GELU(), quantized(k=50, n=20))
    x = rows(70)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), module(x))
