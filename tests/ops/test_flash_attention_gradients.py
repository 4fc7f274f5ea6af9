"""Gradients: against float64 autograd of the reference, PyTorch's own as the measure of error; orders and corners."""

import math

import pytest
import torch
from attention_harness import DTYPES, doubled, inputs, pytorch

from torch_mtl4 import flash_attention, testing
from torch_mtl4.ops import flash_attention_grad
from torch_mtl4.reference import flash_attention as reference


def leaves(*tensors):
    return [None if t is None else t.detach().requires_grad_(t.is_floating_point()) for t in tensors]


def gradients(function, tensors, names, options, grad_out, grad_lse):
    """The gradients of what `names` name among query, key, value and the tensors of options."""
    tensors = {name: t.detach().requires_grad_(name in names) for name, t in tensors.items()}
    result = function(**tensors, **options, return_lse=True)
    kept = [(t, g) for t, g in zip(result, (grad_out, grad_lse), strict=True) if g is not None]
    outs, grads = zip(*kept, strict=True)
    return dict(zip(names, torch.autograd.grad(outs, [tensors[name] for name in names], grads), strict=True))


def check(query, key, value, wanted=("query", "key", "value"), grad_out=None, lse=False, **options):
    """Compares the gradients of the op with those of its reference in float64."""
    tensors = {"query": query, "key": key, "value": value}
    tensors |= {name: t for name, t in options.items() if isinstance(t, torch.Tensor)}
    options = {name: t for name, t in options.items() if name not in tensors}
    shape = (*query.shape[:3], value.shape[3])
    grad_out = testing.randn(*shape, dtype=query.dtype, seed=91) if grad_out is None else grad_out
    grad_lse = testing.randn(*shape[:3], seed=92) if lse else None
    got = gradients(flash_attention, tensors, wanted, options, grad_out, grad_lse)
    want = gradients(
        reference.flash_attention, doubled(tensors), wanted, options, grad_out.double(),
        None if grad_lse is None else grad_lse.double(),
    )  # fmt: skip

    baseline = leaves(query, key, value)
    plain = {name: t for name, t in (options | tensors).items() if name not in ("query", "key", "value")}
    torch_grads = torch.autograd.grad(pytorch(*baseline, **plain), baseline, grad_out)
    plain = {name: t for name, t in plain.items() if name not in ("softcap", "sinks")}
    true_leaves = [t.double().detach().requires_grad_() for t in (query, key, value)]
    true_grads = torch.autograd.grad(
        reference.flash_attention(*true_leaves, **doubled(plain)), true_leaves, grad_out.double()
    )
    error = max(testing.error_of(a, b) for a, b in zip(torch_grads, true_grads, strict=True))
    for name in wanted:
        assert got[name].dtype == tensors[name].dtype
        testing.assert_close(got[name], want[name], testing.allowed_error(error, want[name], tensors[name].dtype),
                             f"gradient of {name}")  # fmt: skip
    return got


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [1, 8, 24, 40, 56, 72, 80, 88, 96, 104, 112, 120])
def test_head_dims(head_dim, dtype):
    check(*inputs(33, 33, head_dim, heads=2, dtype=dtype, seed=head_dim))


@pytest.mark.parametrize("head_dim", [24, 88])
def test_long(head_dim):
    check(*inputs(512, 512, head_dim, heads=2, dtype=torch.bfloat16), causal="lower_right")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim,v_head_dim", [(32, 24), (4, 2), (192, 128), (32, 64)])
def test_value_head_dim_differs(head_dim, v_head_dim, dtype):
    query, key, value = inputs(9, 17, head_dim, v_head_dim=v_head_dim, dtype=dtype)
    assert check(query, key, value)["value"].shape == value.shape


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads,kv_heads", [(4, 2), (4, 1), (6, 3)])
def test_grouped_heads(heads, kv_heads, dtype):
    check(*inputs(9, 17, 16, batch=2, heads=heads, kv_heads=kv_heads, dtype=dtype), causal="lower_right", lse=True)


@pytest.mark.parametrize("causal", [None, "upper_left", "lower_right"])
@pytest.mark.parametrize("options", [{}, {"window": (3, 2)}, {"softcap": 1.5}, {"scale": -0.4}])
@pytest.mark.parametrize("q_len,kv_len", [(7, 20), (20, 7)])
def test_options(q_len, kv_len, options, causal):
    check(*inputs(q_len, kv_len, 16, batch=2), causal=causal, lse=True, **options)


def test_every_input_at_once():
    check(
        *inputs(9, 21, 8, batch=2, heads=4, kv_heads=2, v_head_dim=6),
        wanted=("query", "key", "value", "attn_mask", "sinks", "alibi_slopes"), lse=True,
        attn_mask=testing.randn(2, 1, 9, 21, seed=3), sinks=testing.randn(4, seed=4),
        alibi_slopes=testing.randn(2, 4, seed=5).abs(), causal="lower_right", window=(12, 1), softcap=3.0, scale=0.7,
    )  # fmt: skip


@pytest.mark.parametrize("wanted", ["query", "key", "value", "attn_mask", "sinks", "alibi_slopes"])
def test_only_one_input_needs_a_gradient(wanted):
    options = {
        "attn_mask": {"attn_mask": testing.randn(64, 64, seed=3)},
        "sinks": {"sinks": testing.randn(2, seed=3)},
        "alibi_slopes": {"alibi_slopes": testing.randn(2, seed=3)},
    }.get(wanted, {})
    check(*inputs(64, 64, 16), wanted=(wanted,), **options)


@pytest.mark.parametrize("shape", [(), (13,), (9, 1), (9, 13), (1, 1, 1, 13), (2, 1, 9, 13), (4, 9, 13), (2, 4, 9, 13)])
@pytest.mark.parametrize("mask_dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_mask_gradient_is_summed_over_what_broadcasts(shape, mask_dtype):
    mask = testing.randn(*shape, dtype=mask_dtype, seed=3)
    query, key, value = inputs(9, 13, 16, batch=2, heads=4)
    tensors = {"query": query, "key": key, "value": value, "attn_mask": mask}
    grad = testing.randn(2, 4, 9, 16, seed=1)
    got = gradients(flash_attention, tensors, ["attn_mask"], {}, grad, None)["attn_mask"]
    want = gradients(reference.flash_attention, doubled(tensors), ["attn_mask"], {}, grad.double(), None)["attn_mask"]
    assert got.dtype == mask_dtype and got.shape == shape
    dtype = torch.float32 if mask_dtype == torch.float64 else mask_dtype
    testing.assert_close(got, want, testing.allowed_error(testing.error_of(want.float(), want), grad, dtype))


@pytest.mark.parametrize("sink_dtype", [torch.bfloat16, torch.float64])
def test_gradients_come_back_in_the_dtype_of_the_input(sink_dtype):
    query, key, value = inputs(5, 7, 8, heads=4, dtype=torch.bfloat16)
    sinks = testing.randn(4, dtype=sink_dtype).requires_grad_()
    slopes = testing.randn(4, dtype=sink_dtype).requires_grad_()
    flash_attention(query, key, value, sinks=sinks, alibi_slopes=slopes).sum().backward()
    assert sinks.grad.dtype == slopes.grad.dtype == sink_dtype


@pytest.mark.parametrize("shape,kv_heads", [((1, 5, 2, 8), 5), ((2, 32, 4, 128), 1)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reduce", [torch.sum, torch.mean])
def test_gradient_of_a_plain_sum(reduce, shape, kv_heads, dtype):
    batch, heads, length, head_dim = shape
    tensors = leaves(*inputs(length, length, head_dim, batch=batch, heads=heads, kv_heads=kv_heads, dtype=dtype))
    out = flash_attention(*tensors)
    dense = torch.ones_like(out) / (out.numel() if reduce is torch.mean else 1)
    want = torch.autograd.grad(out, tensors, dense.contiguous(), retain_graph=True)
    for got, expected in zip(torch.autograd.grad(reduce(out), tensors), want, strict=True):
        testing.assert_equal(got, expected)


@pytest.mark.parametrize("layout", testing.LAYOUTS)
def test_any_strides_of_the_output_gradient(layout):
    tensors = leaves(*inputs(20, 30, 16, dtype=torch.bfloat16))
    grad = testing.randn(1, 2, 20, 16, dtype=torch.bfloat16)
    want = torch.autograd.grad(flash_attention(*tensors), tensors, grad)
    got = torch.autograd.grad(flash_attention(*tensors), tensors, testing.lay_out(grad, layout))
    for a, b in zip(got, want, strict=True):
        testing.assert_equal(a, b)


def test_one_query_and_one_key():
    query, key, value = (t * 3 for t in inputs(1, 1, 16, heads=1, dtype=torch.float16))
    got = check(query, key, value, grad_out=torch.ones(1, 1, 1, 16, dtype=torch.float16))
    assert (got["query"] == 0).all() and (got["key"] == 0).all() and (got["value"] == 1).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["bool", "additive"])
@pytest.mark.parametrize("row", [0, 5, 11])
def test_rows_that_see_nothing_pass_no_gradient(row, kind, dtype):
    query, key, value = inputs(12, 10, 8, dtype=dtype)
    mask = torch.ones(12, 10, dtype=torch.bool)
    mask[row] = False
    if kind == "additive":
        mask = torch.where(mask, 0.0, -math.inf)
    got = check(query, key, value, attn_mask=mask)
    assert (got["query"][:, :, row] == 0).all()


def test_rows_of_lowest_finite_values_share_their_gradient():
    """As models mask padding: all keys count alike, and the log of their number is lost beside such a logit."""
    query, key, value = inputs(4, 8, 8)
    mask = torch.zeros(4, 8)
    mask[1] = torch.finfo(torch.float32).min
    grad_out = torch.zeros(1, 2, 4, 8)
    grad_out[:, :, 1] = 1
    sinks = torch.full((2,), torch.finfo(torch.float32).min)
    for options, parts in (({}, 8), ({"sinks": sinks}, 9)):
        got = check(query, key, value, grad_out=grad_out, attn_mask=mask, **options)
        want = torch.full((1, 2, 8, 8), 1 / parts)
        testing.assert_close(got["value"], want, testing.allowed_error(0, want, torch.float32))


def test_nothing_seen_at_all():
    tensors = leaves(*inputs(4, 5, 8))
    out, lse = flash_attention(*tensors, attn_mask=torch.zeros(5, dtype=torch.bool), return_lse=True)
    for grad in torch.autograd.grad((out, lse), tensors, (torch.ones_like(out), torch.ones_like(lse))):
        assert (grad == 0).all()


@pytest.mark.parametrize("batch,heads,q_len,kv_len", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)])
@pytest.mark.parametrize("mask", [False, True])
def test_empty_sizes(batch, heads, q_len, kv_len, mask):
    tensors = leaves(*inputs(q_len, kv_len, 8, batch=batch, heads=heads, layout="dense"))
    attn_mask = torch.zeros(batch, heads, q_len, kv_len, requires_grad=True) if mask else None
    wanted = [*tensors, *([attn_mask] if mask else [])]
    for t, grad in zip(wanted, torch.autograd.grad(flash_attention(*tensors, attn_mask=attn_mask).sum(), wanted),
                       strict=True):  # fmt: skip
        assert grad.shape == t.shape and (grad == 0).all()


def test_a_nan_that_is_hidden_stays_hidden():
    query, key, value = inputs(6, 8, 4, layout="dense")
    key[:, :, 7], value[:, :, 7] = math.nan, 0.0
    mask = torch.arange(8) < 7
    tensors = leaves(query, key, value)
    for grad in torch.autograd.grad(flash_attention(*tensors, attn_mask=mask).sum(), tensors[1:]):
        assert grad.isfinite().all()


def test_gradient_of_lse_alone():
    tensors = leaves(*inputs(6, 8, 4))
    lse = flash_attention(*tensors, return_lse=True)[1]
    got = torch.autograd.grad(lse.sum(), tensors[:2], allow_unused=True)
    doubles = [t.double().detach().requires_grad_() for t in tensors]
    want = torch.autograd.grad(reference.flash_attention(*doubles, return_lse=True)[1].sum(), doubles[:2])
    for a, b in zip(got, want, strict=True):
        testing.assert_close(a, b, testing.allowed_error(testing.error_of(b.float(), b), b, torch.float32))


def test_slabs_of_rows_add_up(monkeypatch):
    options = {"attn_mask": testing.randn(1, 2, 23, 17, seed=2), "causal": "lower_right", "window": (9, 1), "lse": True}
    wanted = ("query", "key", "value", "attn_mask")
    for slab in (1, 34, 200, 10**6):
        monkeypatch.setattr(flash_attention_grad, "SLAB", slab)
        check(*inputs(23, 17, 8), wanted=wanted, **options)


def small(**options):
    tensors = [t.double() for t in inputs(3, 4, 2, heads=2, kv_heads=1, v_head_dim=3)]
    extra = {
        "attn_mask": testing.randn(2, 1, 4, seed=5).double(),
        "sinks": testing.randn(2, seed=6).double(),
        "alibi_slopes": testing.randn(2, seed=7).double(),
    }
    args = leaves(*tensors, *extra.values())

    def forward(query, key, value, attn_mask, sinks, alibi_slopes):
        return reference.flash_attention(
            query, key, value, attn_mask=attn_mask, sinks=sinks, alibi_slopes=alibi_slopes, return_lse=True, **options
        )

    return forward, args


OPTIONS = [{}, {"causal": "upper_left"}, {"causal": "lower_right", "window": (1, 0), "softcap": 1.3, "scale": 0.6}]


@pytest.mark.parametrize("options", OPTIONS)
def test_reference_gradient_by_finite_differences(options):
    forward, args = small(**options)
    torch.autograd.gradcheck(forward, args)
    torch.autograd.gradgradcheck(forward, args)


@pytest.mark.parametrize("options", OPTIONS)
def test_backward_formula_is_the_gradient_of_the_forward_formula(options):
    forward, args = small(**options)
    out, lse = forward(*args)
    grad_out, grad_lse = (testing.randn(*t.shape, seed=i).double() for i, t in enumerate((out, lse)))
    want = torch.autograd.grad((out, lse), args, (grad_out, grad_lse))
    left, right = options.get("window", (-1, -1))
    query, key, value, mask, sinks, slopes = args
    got = reference.flash_attention_backward(
        grad_out, grad_lse, query, key, value, mask, options.get("causal"), left, right, options.get("scale"),
        options.get("softcap"), sinks, slopes, mask_grad=True, rows=2,
    )  # fmt: skip
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("options", OPTIONS)
def test_second_derivatives(options):
    _, args = small(**options)
    names = ("query", "key", "value", "attn_mask", "sinks", "alibi_slopes")

    def curvature(function, tensors):
        given = dict(zip(names, tensors, strict=True))
        out, lse = function(**given, **options, return_lse=True)
        grads = torch.autograd.grad((out.sin().sum(), lse.cos().sum()), tensors, create_graph=True)
        return torch.autograd.grad(sum(grad.sin().sum() for grad in grads), tensors)

    want = curvature(reference.flash_attention, args)
    floats = leaves(*(t.float() for t in args))
    baseline = curvature(reference.flash_attention, floats)
    for name, a, b, c in zip(names, curvature(flash_attention, floats), want, baseline, strict=True):
        testing.assert_close(a, b, testing.allowed_error(testing.error_of(c, b), b, torch.float32), name)


def test_third_derivative():
    query, key, value = (t.requires_grad_() for t in inputs(2, 3, 2, layout="dense"))

    def third(function, q):
        result = function(q, key.to(q.dtype), value.to(q.dtype)).sum()
        for _ in range(3):
            (result,) = torch.autograd.grad(result.sin().sum(), q, create_graph=True)
        return result

    want = third(reference.flash_attention, query.detach().double().requires_grad_())
    baseline = third(reference.flash_attention, query)
    testing.assert_close(
        third(flash_attention, query), want,
        testing.allowed_error(testing.error_of(baseline, want), want, torch.float32),
    )  # fmt: skip


def test_no_grad_records_nothing():
    tensors = leaves(*inputs(4, 5, 8))
    with torch.no_grad():
        assert flash_attention(*tensors).grad_fn is None
    assert flash_attention(*(t.detach() for t in tensors)).grad_fn is None
