"""attn_mask: kinds, shapes, strides; rows and tiles that see nothing; masks together with causal and windows."""

import math

import pytest
import torch
from attention_harness import DTYPES, check, inputs

from torch_mtl4 import flash_attention, testing
from torch_mtl4.reference import flash_attention as reference

MASK_DTYPES = [torch.bool, torch.float32, torch.bfloat16, torch.float16, torch.float64]


def mask_of(allowed, dtype):
    return allowed if dtype == torch.bool else torch.where(allowed, 0.0, -math.inf).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask_dtype", MASK_DTYPES)
@pytest.mark.parametrize("layout", testing.LAYOUTS)
def test_kinds_and_strides(layout, mask_dtype, dtype):
    values = testing.randn(2, 3, 19, 37, seed=4)
    mask = testing.lay_out(values > -0.5 if mask_dtype == torch.bool else values.to(mask_dtype), layout)
    check(*inputs(19, 37, 16, batch=2, heads=3, dtype=dtype), attn_mask=mask)


@pytest.mark.parametrize("shape", [(), (1,), (37,), (19, 1), (19, 37), (1, 1, 1, 37), (3, 19, 37), (3, 1, 1),
                                   (2, 1, 19, 37), (2, 1, 1, 37), (1, 3, 19, 1), (2, 3, 19, 37)])  # fmt: skip
@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [None, "lower_right"])
def test_broadcast_shapes(shape, mask_dtype, causal):
    values = testing.randn(*shape, seed=4)
    mask = values > -0.8 if mask_dtype == torch.bool else values.to(mask_dtype)
    check(*inputs(19, 37, 16, batch=2, heads=3), attn_mask=mask, causal=causal)


def test_expanded_mask_is_not_copied_wrongly():
    base = testing.randn(1, 1, 1, 37, seed=4) > 0
    query, key, value = inputs(19, 37, 16, batch=2, heads=3)
    testing.assert_equal(
        flash_attention(query, key, value, attn_mask=base.expand(2, 3, 19, 37)),
        flash_attention(query, key, value, attn_mask=base),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("q_len", [1, 8, 64])
def test_all_true_equals_no_mask(q_len, dtype):
    query, key, value = inputs(q_len, 512, 64, heads=1, dtype=dtype)
    plain = flash_attention(query, key, value)
    dense = torch.ones(q_len, 512, dtype=torch.bool)
    viewed = torch.full((q_len, 512), 1, dtype=torch.uint8).view(torch.bool)
    gapped = torch.zeros(q_len, 1024, dtype=torch.bool)
    gapped[:, ::2] = True
    allowed = testing.allowed_error(0, plain, dtype)
    for mask in (dense, viewed, gapped[:, ::2]):
        testing.assert_close(flash_attention(query, key, value, attn_mask=mask), plain, allowed)


def test_gapped_mask_equals_its_dense_copy():
    query, key, value = inputs(8, 512, 64, heads=1)
    mask = (testing.randn(8, 1024, seed=3) > 0)[:, ::2]
    testing.assert_equal(
        flash_attention(query, key, value, attn_mask=mask),
        flash_attention(query, key, value, attn_mask=mask.contiguous()),
    )


# Rows that see nothing.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask_dtype", MASK_DTYPES)
@pytest.mark.parametrize("row", [0, 1, 37, 63, 64, 129])
def test_a_row_that_sees_nothing_is_zero(row, mask_dtype, dtype):
    query, key, value = inputs(130, 70, 4, dtype=dtype)
    allowed = torch.ones(1, 2, 130, 70, dtype=torch.bool)
    allowed[:, 1, row] = False
    out, lse = check(query, key, value, attn_mask=mask_of(allowed, mask_dtype))
    assert (out[:, 1, row] == 0).all() and (lse[:, 1, row] == -math.inf).all()
    assert lse[:, 0].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask_dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("kv_len", [3, 70])
def test_a_row_of_lowest_finite_values_attends_everywhere_alike(kv_len, mask_dtype, dtype):
    query, key, value = inputs(3, kv_len, 4, dtype=dtype)
    mask = torch.zeros(3, kv_len, dtype=mask_dtype)
    mask[0] = torch.finfo(mask_dtype).min
    out, lse = flash_attention(query, key, value, attn_mask=mask, return_lse=True)
    assert lse.isfinite().all()
    if mask_dtype not in (torch.float16,):  # float16's lowest value, -65504, leaves the scores their say
        mean = value.double().mean(2)
        testing.assert_close(out[:, :, 0], mean, testing.allowed_error(0, mean, dtype))
        want = reference.flash_attention(query.double(), key.double(), value.double(), attn_mask=mask)
        testing.assert_close(want[:, :, 0], mean, testing.allowed_error(0, mean, torch.float32), "the reference")
    plain = flash_attention(query, key, value)
    testing.assert_close(out[:, :, 1:], plain[:, :, 1:], testing.allowed_error(0, plain, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_row_sees_anything(dtype):
    query, key, value = inputs(70, 130, 16, dtype=dtype)
    for mask in (torch.zeros(130, dtype=torch.bool), torch.full((1, 1), -math.inf)):
        out, lse = flash_attention(query, key, value, attn_mask=mask, return_lse=True)
        assert (out == 0).all() and (lse == -math.inf).all()


def test_window_beyond_the_keys():
    query, key, value = inputs(6, 3, 8)
    out, lse = check(query, key, value, causal="upper_left", window=(1, 0))
    assert (out[:, :, 4:] == 0).all() and (lse[:, :, 4:] == -math.inf).all()


# Tiles that see nothing, before ones that do.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [4, 64])
@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.float32])
def test_band(mask_dtype, head_dim, dtype):
    distance = torch.arange(640)[:, None] - torch.arange(640)[None]
    band = (distance >= 0) & (distance < 10)
    check(*inputs(640, 640, head_dim, heads=1, dtype=dtype), attn_mask=mask_of(band, mask_dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keep", [slice(-3, None), slice(0, 3), slice(64, 65), slice(200, 210)])
@pytest.mark.parametrize("q_len", [1, 7, 40])
def test_few_keys_far_away(q_len, keep, dtype):
    mask = torch.zeros(300, dtype=torch.bool)
    mask[keep] = True
    check(*inputs(q_len, 300, 16, dtype=dtype), attn_mask=mask)


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_window(dtype):
    check(*inputs(640, 640, 16, heads=1, dtype=dtype), causal="lower_right", window=(9, 0))


# Masks with causal and windows, and what they hide.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
@pytest.mark.parametrize("length", [8, 32, 33])
@pytest.mark.parametrize("mask_dtype", [torch.float16, torch.float32, torch.bfloat16])
def test_additive_causal_mask_equals_causal(length, head_dim, mask_dtype, dtype):
    query, key, value = inputs(length, length, head_dim, heads=1, dtype=dtype)
    mask = mask_of(torch.ones(length, length, dtype=torch.bool).tril(), mask_dtype)
    want = flash_attention(query, key, value, causal="upper_left")
    out, _ = check(query, key, value, attn_mask=mask)
    testing.assert_close(out, want, testing.allowed_error(0, want, dtype))


@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.float32])
@pytest.mark.parametrize("causal", [None, "upper_left", "lower_right"])
@pytest.mark.parametrize("window", [None, (20, 3), (5, None)])
def test_all_of_them_apply(window, causal, mask_dtype):
    values = testing.randn(1, 2, 50, 60, seed=8)
    check(
        *inputs(50, 60, 16),
        attn_mask=values > -0.5 if mask_dtype == torch.bool else values.masked_fill(values < -0.5, -math.inf),
        causal=causal, window=window,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("hidden_by", ["bool mask", "additive mask", "causal", "window"])
def test_a_hidden_key_is_skipped_whatever_it_holds(hidden_by, bad, dtype):
    query, key, value = inputs(40, 40, 16, dtype=dtype, layout="dense")
    allowed = torch.ones(40, 40, dtype=torch.bool)
    allowed[:, 35] = False
    options = {
        "bool mask": {"attn_mask": allowed},
        "additive mask": {"attn_mask": mask_of(allowed, torch.float32)},
        "causal": {"causal": "upper_left"},
        "window": {"window": (3, 0)},
    }[hidden_by]
    rows = slice(0, 40) if "mask" in hidden_by else slice(0, 35)
    clean = flash_attention(query, key, value, **options)
    key[:, :, 35] = bad
    testing.assert_equal(flash_attention(query, key, value, **options)[:, :, rows], clean[:, :, rows])


def test_hidden_values_weigh_nothing_however_large():
    query, key, value = inputs(9, 40, 16, layout="dense")
    mask = testing.randn(9, 40, seed=1) > 0
    mask[:, 35] = False
    clean = flash_attention(query, key, value, attn_mask=mask)
    value[:, :, 35] = torch.finfo(torch.float32).max
    testing.assert_equal(flash_attention(query, key, value, attn_mask=mask), clean)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_in_an_additive_mask_stays_in_its_row(dtype):
    query, key, value = inputs(40, 70, 16, dtype=dtype)
    mask = torch.zeros(40, 70)
    clean = flash_attention(query, key, value, attn_mask=mask)
    mask[17, 66] = math.nan
    out, lse = flash_attention(query, key, value, attn_mask=mask, return_lse=True)
    assert out[:, :, 17].isnan().all() and lse[:, :, 17].isnan().all()
    rest = [row for row in range(40) if row != 17]
    testing.assert_equal(out[:, :, rest], clean[:, :, rest])
