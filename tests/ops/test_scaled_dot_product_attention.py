"""scaled_dot_product_attention against F.scaled_dot_product_attention: shapes, broadcasting, arguments, gradients."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from torch_mtl4 import scaled_dot_product_attention, testing

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def tensors(*shapes, dtype=torch.float32):
    return [testing.randn(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]


def check(query, key, value, attn_mask=None, **options):
    """Within the policy of F's float64 result, with F's error in the same dtype as the measure."""
    out = scaled_dot_product_attention(query, key, value, attn_mask, **options)
    doubles = [t.double() for t in (query, key, value)]
    double_mask = attn_mask if attn_mask is None or attn_mask.dtype == torch.bool else attn_mask.double()
    want = F.scaled_dot_product_attention(*doubles, double_mask, **options)
    own_mask = attn_mask if double_mask is attn_mask else attn_mask.to(query.dtype)
    own = F.scaled_dot_product_attention(query, key, value, own_mask, **options)
    assert out.dtype == own.dtype and out.shape == own.shape
    testing.assert_close(out, want, testing.allowed_error(testing.error_of(own, want), want, query.dtype))
    return out


SHAPES = [
    ((5, 8), (7, 8), (7, 6)),
    ((3, 5, 8), (3, 7, 8), (3, 7, 6)),
    ((1, 5, 8), (3, 7, 8), (3, 7, 8)),
    ((3, 5, 8), (1, 7, 8), (1, 7, 8)),
    ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)),
    ((2, 3, 5, 8), (1, 3, 7, 8), (1, 3, 7, 8)),
    ((1, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)),
    ((2, 4, 5, 8), (2, 1, 7, 8), (2, 1, 7, 8)),
    ((2, 1, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8)),
    ((2, 3, 5, 8), (1, 3, 7, 8), (2, 1, 7, 8)),
    ((1, 1, 64), (2, 1, 1, 64), (2, 1, 1, 64)),
    ((5, 8), (2, 3, 7, 8), (2, 3, 7, 8)),
    ((2, 3, 5, 8), (7, 8), (3, 7, 8)),
    ((2, 2, 3, 5, 8), (2, 2, 3, 7, 8), (2, 2, 3, 7, 6)),
    ((2, 1, 3, 5, 8), (1, 4, 3, 7, 8), (2, 4, 1, 7, 8)),
    ((2, 1, 2, 1, 5, 8), (1, 3, 1, 2, 7, 8), (1, 1, 1, 1, 7, 8)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_ranks_and_broadcasting(shapes, is_causal):
    check(*tensors(*shapes), is_causal=is_causal)


def test_the_first_case_of_broadcasting_has_the_shape_of_all():
    assert scaled_dot_product_attention(*tensors((1, 1, 64), (2, 1, 1, 64), (2, 1, 1, 64))).shape == (2, 1, 1, 64)


@pytest.mark.parametrize(
    "mask_shape", [(5, 7), (1, 7), (5, 1), (3, 5, 7), (1, 1, 7), (2, 3, 5, 7), (2, 1, 1, 7), (1, 3, 5, 1)]
)
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_masks(mask_shape, kind, dtype):
    mask = testing.randn(*mask_shape, dtype=dtype, seed=9)
    mask = mask > -0.5 if kind == "bool" else mask
    check(*tensors((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), dtype=dtype), mask)


@pytest.mark.parametrize("shapes,mask_shape", [
    (((3, 5, 8), (3, 7, 8), (3, 7, 8)), (3, 5, 7)),
    (((5, 8), (7, 8), (7, 8)), (5, 7)),
    (((2, 2, 3, 5, 8), (2, 2, 3, 7, 8), (2, 2, 3, 7, 8)), (2, 1, 3, 5, 7)),
    (((2, 2, 3, 5, 8), (2, 2, 3, 7, 8), (2, 2, 3, 7, 8)), (3, 1, 7)),
    (((2, 1, 3, 5, 8), (1, 4, 3, 7, 8), (1, 4, 3, 7, 8)), (2, 4, 1, 5, 7)),
])  # fmt: skip
def test_masks_of_other_ranks(shapes, mask_shape):
    check(*tensors(*shapes), testing.randn(*mask_shape, seed=9) > -0.5)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_mask_and_is_causal_apply_together(kind):
    # PyTorch's CPU path takes both; its documentation does not say what they mean together.
    query, key, value = tensors((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    mask = testing.randn(5, 7, seed=9) > -0.5
    both = mask & torch.ones(5, 7, dtype=torch.bool).tril()
    given = mask if kind == "bool" else torch.where(mask, 0.0, -math.inf)
    want = scaled_dot_product_attention(query, key, value, both)
    out = scaled_dot_product_attention(query, key, value, given, is_causal=True)
    # An additive mask is added to scaled logits, where a boolean one lets the scale be part of the exponent.
    testing.assert_close(out, want, testing.allowed_error(0.0, want, want.dtype))


def test_rows_that_see_nothing():
    query, key, value = tensors((1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8))
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2] = False
    out = check(query, key, value, mask)
    assert (out[:, :, 2] == 0).all()


def test_is_causal_is_the_upper_left_corner():
    query, key, value = tensors((1, 1, 2, 8), (1, 1, 5, 8), (1, 1, 5, 8))
    out = check(query, key, value, is_causal=True)
    testing.assert_close(out[0, 0, 0], value[0, 0, 0], testing.allowed_error(0, value, torch.float32))


@pytest.mark.parametrize("heads", [(4, 2, 2), (4, 1, 1), (4, 4, 4), (4, 2, 4), (4, 2, 1), (6, 3, 2)])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_grouped_heads(lead, heads):
    shapes = [(*lead, h, n, 8) for h, n in zip(heads, (5, 7, 7), strict=True)]
    check(*tensors(*shapes), enable_gqa=True)


def test_grouped_heads_with_a_broadcast_batch():
    check(*tensors((2, 4, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8)), enable_gqa=True)


@pytest.mark.parametrize("scale", [None, 0.5, 1, 0.0, -1.0])
def test_scale(scale):
    check(*tensors((1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8)), scale=scale)


@pytest.mark.parametrize("sizes", list(itertools.product((0, 2), (0, 3), (0, 5), (0, 7))), ids=str)
@pytest.mark.parametrize("mask", [False, True])
def test_empty_sizes(sizes, mask):
    batch, heads, q_len, kv_len = sizes
    check(
        *tensors((batch, heads, q_len, 8), (batch, heads, kv_len, 8), (batch, heads, kv_len, 6)),
        torch.zeros(q_len, kv_len) if mask else None,
    )


@pytest.mark.parametrize("shapes", SHAPES[3:13], ids=str)
def test_gradients_are_summed_over_what_broadcasts(shapes):
    inputs = [t.requires_grad_() for t in tensors(*shapes)]
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    want = torch.autograd.grad(F.scaled_dot_product_attention(*doubles).sin().sum(), doubles)
    own = torch.autograd.grad(F.scaled_dot_product_attention(*inputs).sin().sum(), inputs)
    got = torch.autograd.grad(scaled_dot_product_attention(*inputs).sin().sum(), inputs)
    for a, b, c in zip(got, want, own, strict=True):
        assert a.shape == b.shape
        testing.assert_close(a, b, testing.allowed_error(testing.error_of(c, b), b, torch.float32))


def test_positional_arguments_are_those_of_pytorch():
    query, key, value = tensors((1, 2, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    testing.assert_equal(
        scaled_dot_product_attention(query, key, value, None, 0.0, True),
        scaled_dot_product_attention(query, key, value, is_causal=True),
    )
    with pytest.raises(TypeError):
        scaled_dot_product_attention(query, key, value, None, 0.0, True, 0.5)


@pytest.mark.cpu_only
def test_no_copy_of_broadcast_heads():
    query, key, value = tensors((1, 1, 4, 8), (1, 1, 64, 8), (1, 1, 64, 8))
    wide = key.expand(64, 1, 64, 8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        scaled_dot_product_attention(query.expand(64, 1, 4, 8), wide, value.expand(64, 1, 64, 8))
    assert not {"aten::clone", "aten::copy_", "aten::contiguous"} & {event.key for event in profile.key_averages()}
