"""Small inputs that attention kernels are known to get wrong, as a GPU would run them, on the MSL runner.

Features that a case does not need are given values that do nothing, so that all cases share a few kernels.
"""

import math

import attention_harness as harness
import pytest
import torch

from torch_mtl4 import flash_attention, testing
from torch_mtl4.msl_backend import emulated

from .gpus import SIMDGROUP, TENSOR_OPS

CAPS = {"simdgroup": SIMDGROUP[0], "tensor_ops": TENSOR_OPS[0]}
TIERS = pytest.mark.parametrize("tier", CAPS)


def run(tier, *case, **options):
    with emulated(CAPS[tier]):
        return flash_attention(*case, return_lse=True, **options)


def idle(heads, **options):
    """Every feature, with values that change nothing."""
    nothing = {
        "attn_mask": torch.ones(1, 1, dtype=torch.bool), "softcap": 1e4, "sinks": torch.full((heads,), -math.inf),
        "alibi_slopes": torch.zeros(heads),
    }  # fmt: skip
    return {**nothing, **options}


@TIERS
@pytest.mark.parametrize("q_len", [3, 12])
def test_softcap_leaves_padding_out(q_len, tier):
    """With a cap this low, a padding key that is capped instead of hidden shifts the result by several percent."""
    for kv_len in (17, 33, 65):
        for softcap in (1.0, 2.0):
            case = harness.inputs(q_len, kv_len, 24)
            with emulated(CAPS[tier]):
                harness.check(*case, **idle(2, softcap=softcap))


@TIERS
def test_alibi_in_training_and_decoding_agree(tier):
    query, key, value = harness.inputs(37, 37, 16, heads=12)
    slopes = 2.0 ** -torch.arange(1, 13)
    whole, _ = run(tier, query, key, value, causal="upper_left", **idle(12, alibi_slopes=slopes))
    step, _ = run(tier, query[:, :, -1:], key, value, causal="lower_right", **idle(12, alibi_slopes=slopes))
    testing.assert_close(step, whole[:, :, -1:], testing.allowed_error(0, whole, torch.float32))


@TIERS
def test_windows_that_equal_causal(tier):
    query, key, value = harness.inputs(34, 34, 16, heads=1)
    causal, _ = run(tier, query, key, value, causal="upper_left")
    for window in ((-1, 0), (34, 0), (33, 0), (10**12, 0)):
        testing.assert_equal(run(tier, query, key, value, window=window)[0], causal)
    shorter, _ = run(tier, query, key, value, window=(32, 0))
    testing.assert_equal(shorter[:, :, :-1], causal[:, :, :-1])
    assert not torch.equal(shorter[:, :, -1], causal[:, :, -1])


@TIERS
def test_a_sliding_window_of_four_keys(tier):
    key, value = torch.zeros(1, 1, 40, 4), torch.eye(40)[None, None]
    out, _ = run(tier, torch.zeros(1, 1, 40, 4), key, value, causal="lower_right", window=(3, 0))
    assert (out[0, 0, 8] > 0).nonzero()[:, 0].tolist() == [5, 6, 7, 8]


@TIERS
def test_causal_corners(tier):
    key, value = torch.zeros(1, 1, 34, 4), torch.eye(34)[None, None]
    for causal, first in (("upper_left", 1), ("lower_right", 26)):
        out, _ = run(tier, torch.zeros(1, 1, 9, 4), key, value, causal=causal)
        assert (out[0, 0] > 0).sum(1).tolist() == list(range(first, first + 9))


@TIERS
@pytest.mark.parametrize("dtype", harness.DTYPES, ids=str)
def test_large_products_do_not_overflow(dtype, tier):
    query = key = torch.full((1, 1, 40, 64), 256.0, dtype=dtype)
    value = testing.randn(1, 1, 40, 16, dtype=dtype)
    for scale in (None, 1.0):
        out, lse = run(tier, query, key, value, scale=scale)
        mean = value.double().mean(2, keepdim=True).expand(1, 1, 40, 16)
        testing.assert_close(out, mean, testing.allowed_error(0, mean, dtype))
        assert lse.isfinite().all()


@TIERS
def test_huge_logits_keep_the_largest(tier):
    query, key, value = harness.inputs(20, 70, 16, heads=1)
    with emulated(CAPS[tier]):
        harness.check(query * 100, key * 100, value)


@TIERS
def test_scale_may_be_any_number(tier):
    for scale in (0.0, -0.7, 3.0):
        with emulated(CAPS[tier]):
            harness.check(*harness.inputs(12, 40, 16, heads=1), scale=scale)


@TIERS
def test_a_band_hides_the_first_tiles_of_later_rows(tier):
    distance = torch.arange(100)[:, None] - torch.arange(100)[None]
    band = (distance >= 0) & (distance < 10)
    case = harness.inputs(100, 100, 16, heads=1)
    with emulated(CAPS[tier]):
        for causal in (None, "lower_right"):
            harness.check(*case, **idle(1, attn_mask=band), causal=causal)


@TIERS
def test_an_additive_causal_mask_equals_causal(tier):
    query, key, value = harness.inputs(33, 33, 40, heads=1, dtype=torch.float16)
    mask = torch.zeros(33, 33, dtype=torch.float16).masked_fill(torch.ones(33, 33).triu(1).bool(), -math.inf)
    want, _ = run(tier, query, key, value, causal="upper_left")
    out, _ = run(tier, query, key, value, **idle(1, attn_mask=mask))
    testing.assert_close(out, want, testing.allowed_error(0, want, torch.float16))


@TIERS
def test_parts_merge_through_lse(tier):
    query, key, value = harness.inputs(9, 70, 16, heads=1)
    want_out, want_lse = harness.truth(query, key, value)
    parts = [run(tier, query, k, v) for k, v in zip(key.split([33, 37], 2), value.split([33, 37], 2), strict=True)]
    lse = torch.logaddexp(parts[0][1], parts[1][1])
    out = sum((part_lse - lse).exp()[..., None] * part for part, part_lse in parts)
    testing.assert_close(lse, want_lse, testing.allowed_error(0, want_lse, torch.float32), "lse")
    testing.assert_close(out, want_out, testing.allowed_error(0, want_out, torch.float32), "out")


def test_grouped_heads_of_split_keys():
    """Partial results of wrong stride give wrong numbers at 32 heads, right ones at one."""
    for heads, kv_heads in ((32, 2), (32, 1), (6, 3)):
        query, key, value = harness.inputs(1, 515, 16, heads=heads, kv_heads=kv_heads, layout="permuted")
        with emulated(SIMDGROUP[0], checked=False):
            out, _ = harness.check(query, key, value)
            testing.assert_equal(flash_attention(query, key, value), out)
