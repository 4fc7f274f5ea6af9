"""flash_attention of few queries as a GPU would run it: keys read once for all the rows that share them, and split."""

import math

import attention_harness as harness
import pytest
import torch

from torch_mtl4 import flash_attention, testing
from torch_mtl4.msl_backend import emulated

from .gpus import SIMDGROUP

CAPS = SIMDGROUP[0]


def check(*case, **options):
    run = {name: options.pop(name) for name in ("shuffle", "seed", "checked") if name in options}
    with emulated(CAPS, **run) as emulation:
        out, lse = harness.check(*case, **options)
    return out, lse, [name for name, _ in emulation.dispatches]


def cache(kv_len, head_dim, kv_heads, dtype):
    """Keys and values that are followed by NaN."""
    whole = testing.poison(2, 1, kv_heads, kv_len + 40, head_dim, dtype=dtype)
    whole[:, :, :, :kv_len] = testing.randn(2, 1, kv_heads, kv_len, head_dim, dtype=dtype, seed=2)
    return whole[:, :, :, :kv_len]


@pytest.mark.parametrize("dtype", harness.DTYPES, ids=str)
def test_no_key_behind_the_last_is_read(dtype):
    for n, kv_len in enumerate((1, 7, 8, 9, 31, 33, 38, 65)):
        query = testing.randn(1, 8, 1 + n, 48, dtype=dtype, seed=1)
        _, _, kernels = check(query, *cache(kv_len, 48, 2, dtype), causal=(None, "lower_right")[n % 2])
        assert kernels == [f"flash_attention_decode_{_name(dtype)}_64_{4 if n == 0 else 8}"]


@pytest.mark.parametrize("heads, kv_heads", [(1, 1), (6, 3), (8, 1)])
def test_splits(heads, kv_heads):
    """One pass and two agree with the reference around the length from which on there are two."""
    for n, kv_len in enumerate((255, 256, 257, 513, 600)):
        query = testing.randn(1, heads, 1, 16, seed=1)
        *_, kernels = check(query, *cache(kv_len, 16, kv_heads, torch.float32), shuffle=n % 2 == 1)
        assert ("flash_attention_merge_float" in kernels) == (kv_len > 256)


def test_a_window_splits_what_it_sees_and_no_more():
    case = harness.inputs(3, 900, 16, heads=2)
    *_, kernels = check(*case, causal="lower_right", window=(100, 0))
    assert kernels == ["flash_attention_decode_float_64_4"]
    *_, kernels = check(*case, causal="lower_right", window=(400, 0))
    assert kernels[1:] == ["flash_attention_merge_float"]


@pytest.mark.parametrize("kv_len", [45, 530])
def test_everything_at_once(kv_len):
    mask = testing.randn(2, 1, 3, kv_len, seed=7)
    check(
        *harness.inputs(3, kv_len, 20, batch=2, heads=4, kv_heads=2, v_head_dim=24),
        attn_mask=testing.lay_out(mask.masked_fill(mask < -0.5, -math.inf), "permuted"), causal="lower_right",
        window=(kv_len - 10, 4), scale=0.3, softcap=2.0, sinks=testing.randn(4, seed=1),
        alibi_slopes=testing.randn(2, 4, seed=2).abs() / 10,
    )  # fmt: skip


@pytest.mark.parametrize(
    "head_dim, v_head_dim, heads, dtype",
    [
        (65, 128, 1, torch.float16),
        (128, 100, 4, torch.bfloat16),
        (256, 40, 3, torch.float32),
        (576, 512, 3, torch.float32),
    ],
)
def test_head_dims(head_dim, v_head_dim, heads, dtype):
    check(*harness.inputs(1, 37, head_dim, v_head_dim=v_head_dim, heads=heads, kv_heads=1, dtype=dtype))


def test_layouts_of_inputs():
    for layout in testing.LAYOUTS:
        check(*harness.inputs(2, 37, 24, batch=2, heads=4, kv_heads=2, layout=layout))


def test_rows_that_see_nothing():
    query, key, value = harness.inputs(2, 600, 16, heads=1)
    mask = torch.zeros(2, 600, dtype=torch.bool)
    mask[0, 590:] = True
    value[:, :, 3] = math.nan
    with emulated(CAPS):
        out, lse = flash_attention(query, key, value, attn_mask=mask, return_lse=True)
        nothing, nothing_lse = flash_attention(query, key[:, :, :0], value[:, :, :0], return_lse=True)
    # A hidden value is not touched at all.
    assert out[:, :, 0].isfinite().all() and lse[:, :, 0].isfinite().all()
    assert (out[:, :, 1] == 0).all() and (lse[:, :, 1] == -math.inf).all()
    assert (nothing == 0).all() and (nothing_lse == -math.inf).all()


def test_long_sums_are_exact():
    query, key = torch.zeros(1, 1, 1, 8, dtype=torch.bfloat16), testing.randn(1, 1, 2048, 8, dtype=torch.bfloat16)
    with emulated(CAPS):
        out, lse = flash_attention(query, key, torch.ones_like(key), return_lse=True)
    testing.assert_equal(out, torch.ones_like(out))
    want = torch.full((1, 1, 1), math.log(2048), dtype=torch.float64)
    testing.assert_close(lse, want, testing.allowed_error(0, want, torch.float32), "lse")


def _name(dtype):
    return {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bfloat"}[dtype]
