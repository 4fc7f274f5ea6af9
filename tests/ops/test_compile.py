"""The ops under torch.compile, torch.export, autocast, vmap and torch.library.opcheck."""

import pytest
import torch

from torch_mtl4 import (
    _ops,
    flash_attention,
    mxfp8_dequantize,
    mxfp8_linear,
    mxfp8_quantize,
    scaled_dot_product_attention,
    testing,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def qkv(batch=2, heads=4, kv_heads=2, q_len=5, kv_len=7, head_dim=8, dtype=torch.float32):
    shapes = ((batch, heads, q_len, head_dim), (batch, kv_heads, kv_len, head_dim), (batch, kv_heads, kv_len, head_dim))
    return [testing.randn(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]


def layer(n=7, k=96):
    return mxfp8_quantize(testing.randn(n, k, seed=5))


# opcheck: schema, autograd registration, fake kernels, AOT with dynamic sizes.


def attention_samples():
    q, k, v = qkv()
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    yield "plain", (q, k, v), {}
    yield "gradient", tuple(leaves), {}
    yield "bfloat16", tuple(t.bfloat16() for t in (q, k, v)), {"causal": "lower_right"}
    yield "bool mask", (q, k, v), {"attn_mask": testing.randn(5, 7) > -1, "causal": "upper_left"}
    yield "mask gradient", (*leaves, testing.randn(1, 1, 5, 7).requires_grad_()), {}
    yield "strided", tuple(t.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for t in (q, k, v)), {}
    yield "expanded", (q, k[:1].expand(2, -1, -1, -1), v), {}
    yield (
        "everything",
        (*leaves, testing.randn(2, 1, 5, 7)),
        {
            "causal": "lower_right", "window_left": 3, "window_right": 1, "scale": 0.3, "softcap": 4.0,
            "sinks": testing.randn(4).requires_grad_(), "alibi_slopes": testing.randn(2, 4).requires_grad_(),
        },
    )  # fmt: skip
    yield "one query", tuple(qkv(q_len=1, batch=1)), {}
    yield "empty batch", tuple(qkv(batch=0)), {}
    yield "no keys", tuple(qkv(kv_len=0)), {}
    yield "value head dim", (q, k, testing.randn(2, 2, 7, 3)), {}


def mx_samples():
    x = testing.randn(3, 5, 96)
    data, scale = mxfp8_quantize(x)
    weight, weight_scale = layer()
    yield "quantize", _ops.mxfp8_quantize, (x,), {}
    yield "quantize floor", _ops.mxfp8_quantize, (x.bfloat16().mT, "floor"), {}
    yield "quantize short block", _ops.mxfp8_quantize, (x[..., :50], "even"), {}
    yield "dequantize", _ops.mxfp8_dequantize, (data, scale, torch.bfloat16), {}
    yield "dequantize strided", _ops.mxfp8_dequantize, (data[:, 1:3], scale[:, 1:3], torch.float32), {}
    yield "linear", _ops.mxfp8_linear, (x, weight, weight_scale), {}
    yield "linear gradient", _ops.mxfp8_linear, (x.clone().requires_grad_(), weight, weight_scale), {}
    bias = testing.randn(7).requires_grad_()
    yield "linear bias", _ops.mxfp8_linear, (x.clone().requires_grad_(), weight, weight_scale, bias), {}
    yield "linear vector", _ops.mxfp8_linear, (x[0, 0], weight, weight_scale), {}
    yield "linear no rows", _ops.mxfp8_linear, (x[:0], weight, weight_scale), {}


SAMPLES = [(f"attention {name}", _ops.flash_attention, args, kwargs) for name, args, kwargs in attention_samples()]
SAMPLES += mx_samples()


@pytest.mark.parametrize("op,args,kwargs", [pytest.param(*s[1:], id=s[0]) for s in SAMPLES])
def test_opcheck(op, args, kwargs):
    torch.library.opcheck(op, args, kwargs)


def test_opcheck_of_the_backward_op():
    q, k, v = (t.requires_grad_() for t in qkv())
    grads = testing.randn(2, 4, 5, 8).requires_grad_(), testing.randn(2, 4, 5)
    torch.library.opcheck(_ops.flash_attention_backward, (*grads, q, k, v), {"causal": "lower_right"})


@pytest.mark.parametrize("shape", [(2, 4, 5, 8), (1, 4, 1, 8), (2, 1, 5, 8)])
def test_fake_kernel_gives_the_strides_of_the_real_one(shape):
    from torch._subclasses.fake_tensor import FakeTensorMode

    tensors = [testing.randn(*shape) for _ in range(3)]
    real = flash_attention(*tensors, return_lse=True)
    with FakeTensorMode() as mode:
        fake = flash_attention(*(mode.from_tensor(t) for t in tensors), return_lse=True)
    for a, b in zip(real, fake, strict=True):
        assert a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype


# torch.compile.


def run_both(function, *args, **compile_options):
    """Values and gradients of the compiled function against those of the eager one, bit for bit."""
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, **compile_options)
    results = []
    for call in (function, compiled):
        leaves = [
            t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t for t in args
        ]
        out = call(*leaves)
        out = out if isinstance(out, tuple) else (out,)
        wanted = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
        if wanted:
            out += torch.autograd.grad(sum(t.float().sum() for t in out), wanted)
        results.append(out)
    for eager, traced in zip(*results, strict=True):
        testing.assert_equal(traced, eager)
    return compiled


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_attention_compiles_with_gradients(backend, dynamic):
    q, k, v = (t.requires_grad_() for t in qkv())
    mask, sinks = testing.randn(5, 7, seed=8).requires_grad_(), testing.randn(4, seed=9).requires_grad_()

    def function(q, k, v, mask, sinks):
        return flash_attention(
            q, k, v, attn_mask=mask, causal="lower_right", window=(4, None), softcap=3.0, sinks=sinks, return_lse=True
        )

    run_both(function, q, k, v, mask, sinks, backend=backend, dynamic=dynamic)


def test_attention_is_traced_once_for_all_sizes():
    compiled = run_both(lambda q, k, v: flash_attention(q, k, v, causal="upper_left"), *qkv(batch=6), dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch, q_len, kv_len in ((3, 9, 12), (5, 20, 6), (2, 64, 65)):
            q, k, v = qkv(batch=batch, q_len=q_len, kv_len=kv_len)
            testing.assert_equal(compiled(q, k, v), flash_attention(q, k, v, causal="upper_left"))


def test_scale_and_softcap_as_arguments():
    run_both(lambda *a: flash_attention(*a[:3], scale=a[3], softcap=a[4]), *qkv(), 0.3, 5.0, dynamic=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_sdpa_compiles(dynamic):
    q, k, v = (t.requires_grad_() for t in qkv())
    mask = testing.randn(5, 5) > 0
    options = {"dynamic": dynamic, "backend": "aot_eager"}
    run_both(lambda *a: scaled_dot_product_attention(*a, enable_gqa=True), q, k, v, **options)
    run_both(lambda q, mask: scaled_dot_product_attention(q[0], q, q[:1], mask, is_causal=True), q, mask, **options)


@pytest.mark.parametrize("dynamic", [False, True])
def test_mxfp8_compiles(dynamic):
    weight, scale = layer()
    x, bias = testing.randn(3, 5, 96).requires_grad_(), testing.randn(7).requires_grad_()
    options = {"dynamic": dynamic, "backend": "aot_eager"}
    run_both(mxfp8_linear, x, weight, scale, bias, dynamic=dynamic)
    run_both(lambda w, s: mxfp8_dequantize(w, s, dtype=torch.bfloat16), weight, scale, **options)
    run_both(lambda x: mxfp8_quantize(x, scaling="floor"), x.detach(), **options)

    def on_float8(x, weight, scale):
        return mxfp8_linear(x, weight.view(torch.float8_e4m3fn), scale.view(torch.float8_e8m0fnu))

    run_both(on_float8, x, weight, scale, **options)


def test_linear_is_traced_once_for_all_sizes():
    weight, scale = layer()
    compiled = run_both(lambda x: mxfp8_linear(x, weight, scale), testing.randn(5, 96), dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for m in (2, 17, 100):
            x = testing.randn(m, 96, seed=m)
            testing.assert_equal(compiled(x), mxfp8_linear(x, weight, scale))


# torch.export.


class Everything(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, t in zip(("weight", "scale"), layer(8, 8), strict=True):
            self.register_buffer(name, t)

    def forward(self, q, k, v):
        out, lse = flash_attention(q, k, v, causal="lower_right", window=(100, None), return_lse=True)
        return mxfp8_linear(out + scaled_dot_product_attention(q, k, v, enable_gqa=True), self.weight, self.scale), lse


@pytest.mark.parametrize("strict", [False, True])
def test_export_with_dynamic_sizes(strict):
    module = Everything()
    batch, q_len, kv_len = (torch.export.Dim(name, min=2, max=4096) for name in ("batch", "q_len", "kv_len"))
    shapes = {"q": {0: batch, 2: q_len}, "k": {0: batch, 2: kv_len}, "v": {0: batch, 2: kv_len}}
    program = torch.export.export(module, tuple(qkv()), dynamic_shapes=shapes, strict=strict)
    targets = {str(node.target) for node in program.graph.nodes}
    assert {"torch_mtl4.flash_attention.default", "torch_mtl4.mxfp8_linear.default"} <= targets
    for sizes in ({}, {"batch": 3, "q_len": 11, "kv_len": 30}):
        tensors = qkv(**sizes)
        for a, b in zip(program.module()(*tensors), module(*tensors), strict=True):
            testing.assert_equal(a, b)


# Autocast.


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_attention_under_autocast(dtype, compiled):
    q, k, v = qkv()
    q, k, mask = q.requires_grad_(), k.half(), testing.randn(5, 7)
    torch._dynamo.reset()
    function = torch.compile(flash_attention, fullgraph=True, backend="aot_eager") if compiled else flash_attention
    want = flash_attention(q.to(dtype), k.to(dtype), v.to(dtype), attn_mask=mask)
    with torch.autocast("cpu", dtype=dtype):
        out = function(q, k, v, attn_mask=mask)
    assert out.dtype == dtype
    testing.assert_equal(out, want)
    out.sum().backward()
    assert q.grad.dtype == torch.float32 and q.grad.isfinite().all()


@pytest.mark.parametrize("compiled", [False, True])
def test_masks_and_sinks_keep_their_dtype_under_autocast(compiled):
    q, k, v = qkv()
    sinks, slopes = testing.randn(4), testing.randn(4).abs()
    torch._dynamo.reset()
    function = torch.compile(flash_attention, fullgraph=True, backend="aot_eager") if compiled else flash_attention
    low = [t.bfloat16() for t in (q, k, v)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = function(q, k, v, sinks=sinks, alibi_slopes=slopes)
    testing.assert_equal(out, flash_attention(*low, sinks=sinks, alibi_slopes=slopes))


@pytest.mark.parametrize("compiled", [False, True])
def test_linear_under_autocast(compiled):
    weight, scale = layer()
    x, bias = testing.randn(3, 96).requires_grad_(), testing.randn(7).requires_grad_()
    torch._dynamo.reset()
    function = torch.compile(mxfp8_linear, fullgraph=True, backend="aot_eager") if compiled else mxfp8_linear
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = function(x, weight, scale, bias)
    testing.assert_equal(out, mxfp8_linear(x.bfloat16(), weight, scale, bias.bfloat16()))
    out.sum().backward()
    assert x.grad.dtype == bias.grad.dtype == torch.float32


def test_sdpa_under_autocast_equals_pytorch_in_dtype():
    q, k, v = qkv(kv_heads=4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, own = (
            f(q, k.half(), v) for f in (scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention)
        )
    assert ours.dtype == own.dtype == torch.bfloat16


def test_float64_is_left_alone_by_autocast():
    q = torch.zeros(1, 1, 2, 8, dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(NotImplementedError, match=r"torch\.float64"):
        flash_attention(q, q, q)


def test_mixed_dtypes_raise_without_autocast():
    q, k, v = qkv()
    with pytest.raises(TypeError, match="key of query's dtype"):
        flash_attention(q, k.bfloat16(), v)
    with torch.autocast("cpu", enabled=False), pytest.raises(TypeError, match="key of query's dtype"):
        flash_attention(q, k.bfloat16(), v)


# Function transforms.


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_runs_once_an_element():
    q, k, v = (torch.stack([t, t * 2]) for t in qkv())
    want = torch.stack([flash_attention(*row) for row in zip(q, k, v, strict=True)])
    testing.assert_equal(torch.vmap(flash_attention)(q, k, v), want)
    weight, scale = layer()
    x = testing.randn(3, 4, 96)
    want = torch.stack([mxfp8_linear(rows, weight, scale) for rows in x])
    testing.assert_equal(torch.vmap(lambda x: mxfp8_linear(x, weight, scale))(x), want)


def test_functional_gradients_raise():
    q, k, v = qkv()
    with pytest.raises(RuntimeError):
        torch.func.grad(lambda q: flash_attention(q, k, v).sum())(q)


def test_checkpointing_and_hooks():
    from torch.utils.checkpoint import checkpoint

    q, k, v = (t.requires_grad_() for t in qkv())
    want = torch.autograd.grad(flash_attention(q, k, v).sum(), (q, k, v))
    got = torch.autograd.grad(checkpoint(flash_attention, q, k, v, use_reentrant=False).sum(), (q, k, v))
    with torch.autograd.graph.save_on_cpu():
        out = flash_attention(q, k, v)
    for a, b, c in zip(want, got, torch.autograd.grad(out.sum(), (q, k, v)), strict=True):
        testing.assert_equal(b, a)
        testing.assert_equal(c, a)


def test_an_input_changed_in_place_before_backward_raises():
    q, k, v = (t.requires_grad_() for t in qkv())
    out = flash_attention(q, k, v)
    with torch.no_grad():
        k.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
