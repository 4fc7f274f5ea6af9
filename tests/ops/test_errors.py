"""Bad input: the same class and the same text in eager mode, on fake tensors and under torch.compile."""

import re

import pytest
import torch
from bad_calls import BAD_CALLS
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_mtl4 import _ops, flash_attention, mxfp8_linear, mxfp8_quantize


@pytest.mark.parametrize("name", BAD_CALLS)
def test_eager(name):
    error, text, function, args, options = BAD_CALLS[name]
    with pytest.raises(error) as info:
        function(*args, **options)
    assert str(info.value).startswith(text)
    assert type(info.value) is error


def as_fake(mode, x):
    return mode.from_tensor(x) if isinstance(x, torch.Tensor) else x


@pytest.mark.parametrize("name", BAD_CALLS)
def test_fake(name):
    error, text, function, args, options = BAD_CALLS[name]
    with FakeTensorMode() as mode:
        args = [as_fake(mode, x) for x in args]
        options = {key: as_fake(mode, x) for key, x in options.items()}
        with pytest.raises(error, match="^" + re.escape(text)):
            function(*args, **options)


# Tracing takes a second a case: every class and every way of raising once.
COMPILED = ["query rank", "head dim of key", "head counts", "large head dim", "float64", "mixed key",
            "device of key", "list", "mask shape", "causal word", "window sign", "window float", "scale nan",
            "softcap zero", "slopes batch", "sdpa heads", "sdpa dropout", "quantize word", "quantize gradient",
            "dequantize scale", "dequantize dtype", "linear K", "linear scale", "linear bias dtype",
            "linear frozen weight"]  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name, dynamic):
    error, text, function, args, options = BAD_CALLS[name]
    torch._dynamo.reset()
    compiled = torch.compile(lambda: function(*args, **options), fullgraph=True, dynamic=dynamic, backend="eager")
    with pytest.raises(error, match="^" + re.escape(text)):
        compiled()


def test_compiled_arguments_whose_sizes_are_symbols():
    torch._dynamo.reset()
    compiled = torch.compile(flash_attention, fullgraph=True, dynamic=True, backend="eager")
    query, key = torch.zeros(2, 4, 5, 8), torch.zeros(2, 3, 7, 8)
    with pytest.raises(ValueError, match="got H = 4, Hkv = 3"):
        compiled(query, key, key)


def test_exported():
    class Attention(torch.nn.Module):
        def forward(self, query, key):
            return flash_attention(query, key, key)

    with pytest.raises(ValueError, match=r"got \[2, 2, 7, 9\]"):
        torch.export.export(Attention(), (torch.zeros(2, 4, 5, 8), torch.zeros(2, 2, 7, 9)))


# Raw ops: what a caller of torch.ops can do is guarded by the C++ contract, and by the checks in fake kernels.


def raw_calls():
    q, k = torch.zeros(2, 4, 5, 8), torch.zeros(2, 2, 7, 8)
    data, scale = torch.zeros(5, 64, dtype=torch.uint8), torch.zeros(5, 2, dtype=torch.uint8)
    attention, linear = _ops.flash_attention, _ops.mxfp8_linear
    return {
        "rank": lambda: attention(q[0], k, k),
        "batch": lambda: attention(q, k[:1], k),
        "value length": lambda: attention(q, k, k[:, :, :3]),
        "value heads": lambda: attention(q, k, k[:, :1]),
        "head dim": lambda: attention(q, k[..., :4], k),
        "head counts": lambda: attention(q[:, :3], k, k),
        "no key heads": lambda: attention(q, k[:, :0], k[:, :0]),
        "large head dim": lambda: attention(*(torch.zeros(1, 1, 2, d) for d in (600, 600, 8))),
        "empty head dim": lambda: attention(q[..., :0], k[..., :0], k),
        "dtype": lambda: attention(q, k.half(), k),
        "float64": lambda: attention(q.double(), k.double(), k.double()),
        "mask shape": lambda: attention(q, k, k, torch.zeros(5, 6)),
        "mask rank": lambda: attention(q, k, k, torch.zeros(1, 2, 4, 5, 7)),
        "mask dtype": lambda: attention(q, k, k, torch.zeros(5, 7, dtype=torch.int64)),
        "mask of 0 keys": lambda: attention(q, k, k, torch.zeros(5, 0)),
        "causal": lambda: attention(q, k, k, None, "left"),
        "window": lambda: attention(q, k, k, None, None, -2, 0),
        "softcap": lambda: attention(q, k, k, softcap=-1.0),
        "sinks": lambda: attention(q, k, k, sinks=torch.zeros(3)),
        "sinks dtype": lambda: attention(q, k, k, sinks=torch.zeros(4).half()),
        "slopes": lambda: attention(q, k, k, alibi_slopes=torch.zeros(3, 4)),
        "slopes dtype": lambda: attention(q, k, k, alibi_slopes=torch.zeros(4).double()),
        "quantize dtype": lambda: _ops.mxfp8_quantize(q.double()),
        "quantize scalar": lambda: _ops.mxfp8_quantize(torch.zeros(())),
        "quantize word": lambda: _ops.mxfp8_quantize(q, "round"),
        "dequantize scale": lambda: _ops.mxfp8_dequantize(data, scale[:, :1], torch.float32),
        "dequantize rows": lambda: _ops.mxfp8_dequantize(data, scale[:4], torch.float32),
        "dequantize rank": lambda: _ops.mxfp8_dequantize(data, scale[0], torch.float32),
        "dequantize dtype": lambda: _ops.mxfp8_dequantize(data, scale, torch.int32),
        "dequantize data": lambda: _ops.mxfp8_dequantize(data.float(), scale, torch.float32),
        "dequantize scalars": lambda: _ops.mxfp8_dequantize(data[0, 0], scale[0, 0], torch.float32),
        "linear K": lambda: linear(torch.zeros(3, 65), data, scale),
        "linear scale": lambda: linear(torch.zeros(3, 64), data, scale[:, :1]),
        "linear scale rows": lambda: linear(torch.zeros(3, 64), data, scale[:4]),
        "linear rank": lambda: linear(torch.zeros(3, 64), data[0], scale[0]),
        "linear bias": lambda: linear(torch.zeros(3, 64), data, scale, torch.zeros(4)),
        "linear bias dtype": lambda: linear(torch.zeros(3, 64), data, scale, torch.zeros(5).half()),
        "linear x": lambda: linear(torch.zeros(3, 64).double(), data, scale),
        "linear weight": lambda: linear(torch.zeros(3, 64), data.view(torch.int8), scale),
        "linear scalar": lambda: linear(torch.zeros(()), data, scale),
    }  # fmt: skip


@pytest.mark.parametrize("name", raw_calls())
def test_raw_ops_refuse_what_they_cannot_address(name):
    with pytest.raises((RuntimeError, TypeError, ValueError), match="expected"):
        raw_calls()[name]()


def test_raw_ops_take_no_tensor_of_another_device():
    q = torch.zeros(1, 1, 2, 8)
    with pytest.raises((RuntimeError, ValueError)):
        _ops.flash_attention(q, q, q, torch.zeros(2, 2, device="meta"))
    with pytest.raises((RuntimeError, ValueError)):
        _ops.mxfp8_linear(q, torch.zeros(5, 8, dtype=torch.uint8, device="meta"), torch.zeros(5, 1, dtype=torch.uint8))


# Gradients that the path does not have.


def test_raw_quantize_of_a_leaf_raises():
    with pytest.raises(NotImplementedError, match=r"pass x\.detach\(\)"):
        _ops.mxfp8_quantize(torch.zeros(64, requires_grad=True))


def test_no_gradient_is_missed_where_none_is_recorded():
    x = torch.zeros(3, 64, requires_grad=True)
    with torch.no_grad():
        data, scale = mxfp8_quantize(x)
        mxfp8_linear(x, data.view(torch.float8_e4m3fn).requires_grad_(), scale)
    mxfp8_quantize(x.detach())


def test_forward_mode_raises():
    query = torch.zeros(1, 1, 2, 4)
    data, scale = mxfp8_quantize(torch.zeros(3, 4))
    for function in (lambda q: flash_attention(q, q, q), lambda q: mxfp8_linear(q, data, scale)):
        with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
            torch.func.jvp(function, (query,), (query,))


def test_layouts_other_than_strided():
    sparse = torch.zeros(2, 64).to_sparse()
    with pytest.raises(NotImplementedError, match=r"x of layout torch\.strided, got torch\.sparse_coo"):
        mxfp8_quantize(sparse)


def test_another_device_has_no_kernel():
    query = torch.zeros(1, 1, 2, 4, device="meta")
    assert flash_attention(query, query, query).device.type == "meta"
