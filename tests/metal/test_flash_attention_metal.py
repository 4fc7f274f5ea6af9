"""flash_attention as a GPU would run it, on the MSL runner, beside the reference under the tolerance policy.

Many queries run on two tiers of kernels, few on one. A kernel is built for each combination of features, which takes
longer than running it: cases that need no feature of their own share the plain one.
"""

import math

import attention_harness as harness
import pytest
import torch

from torch_mtl4 import flash_attention, testing
from torch_mtl4.msl.kernel import LAYOUTS
from torch_mtl4.msl_backend import emulated

from .gpus import SIMDGROUP, TENSOR_OPS

CAPS = {"simdgroup": SIMDGROUP[0], "tensor_ops": TENSOR_OPS[0]}
KERNEL = {"simdgroup": "flash_attention_prefill", "tensor_ops": "flash_attention_tensor_ops"}
TIERS = pytest.mark.parametrize("tier", CAPS)
MASK_DTYPES = (torch.bool, torch.float32, torch.bfloat16, torch.float16)


def check(tier, query, key, value, **options):
    """Compares with the reference what the kernels of that tier give; returns out, lse and the emulation."""
    run = {name: options.pop(name) for name in ("layout", "shuffle", "seed", "checked") if name in options}
    with emulated(CAPS[tier], **run) as emulation:
        out, lse = harness.check(query, key, value, **options)
    if query.shape[2] > 8:
        ran = KERNEL["simdgroup" if key.shape[2] < 32 else tier]
        assert [name.startswith(ran) for name, _ in emulation.dispatches] == [True]
    return out, lse, emulation


def mask_of(visible, dtype):
    if dtype == torch.bool:
        return visible
    return torch.zeros(visible.shape, dtype=dtype).masked_fill(~visible, -math.inf)


def results(caps, *case, **options):
    with emulated(caps, **{name: options.pop(name) for name in ("layout", "shuffle", "seed") if name in options}):
        return flash_attention(*case, return_lse=True, **options)


# Many queries: sizes, strides, corners.


@TIERS
@pytest.mark.parametrize("dtype", harness.DTYPES, ids=str)
def test_lengths_around_the_edges_of_tiles(dtype, tier):
    sizes = [(9, 1), (9, 31), (16, 32), (17, 33), (31, 63), (32, 64), (33, 65), (64, 34), (65, 47)]
    for n, (q_len, kv_len) in enumerate(sizes):
        case = harness.inputs(q_len, kv_len, 24, heads=1, v_head_dim=(24, 40, 7)[n % 3], dtype=dtype, seed=n)
        check(tier, *case, causal=(None, "upper_left", "lower_right")[n % 3])


@TIERS
def test_windows(tier):
    windows = [(0, 0), (3, 0), (0, 5), (17, 33), (40, None), (None, 3), (200, 200)]
    for n, window in enumerate(windows):
        case = harness.inputs(*((40, 70), (70, 40))[n % 2], 16, heads=1, seed=n)
        check(tier, *case, window=window, causal=(None, "lower_right", "upper_left")[n % 3])


@TIERS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layouts_of_inputs(dtype, tier):
    for n, layout in enumerate(testing.LAYOUTS):
        case = harness.inputs(19, 37, 24, batch=2, heads=2, kv_heads=(1, 2)[n % 2], dtype=dtype, layout=layout)
        check(tier, *case, causal="lower_right")


@TIERS
def test_slices_of_one_fused_buffer(tier):
    fused = testing.randn(1, 38, 3, 2, 24, dtype=torch.float16)
    fused[:, :3] = math.nan
    check(tier, *fused[:, 3:].permute(2, 0, 3, 1, 4).unbind(0), causal="upper_left")


@TIERS
def test_expanded_inputs(tier):
    query, key, value = harness.inputs(20, 40, 16, heads=1)
    out, _, _ = check(tier, *(t.expand(2, 2, -1, -1) for t in (query, key, value)))
    testing.assert_equal(out, out[:1, :1].expand(2, 2, -1, -1))


@pytest.mark.parametrize("which", ["query", "key", "value"])
def test_one_row_expanded_over_all_positions_goes_to_the_simdgroup_tier(which):
    """Stride 0 is not for matmul2d."""
    case = dict(zip(("query", "key", "value"), harness.inputs(20, 40, 16, heads=1), strict=True))
    case[which] = case[which][:, :, :1].expand(-1, -1, case[which].shape[2], -1)
    with emulated(CAPS["tensor_ops"]) as emulation:
        harness.check(*case.values())
    assert emulation.dispatches[0][0] == "flash_attention_prefill_float_64_64"


@pytest.mark.parametrize(
    ("tier", "head_dim", "v_head_dim", "dtype"),
    [
        ("simdgroup", 80, 96, torch.float32),
        ("simdgroup", 128, 15, torch.float32),
        ("simdgroup", 130, 100, torch.float32),
        ("simdgroup", 40, 300, torch.float32),
        ("simdgroup", 160, 256, torch.bfloat16),
        ("tensor_ops", 80, 96, torch.float16),
        ("tensor_ops", 33, 128, torch.float32),
        ("tensor_ops", 200, 140, torch.float32),
    ],
    ids=str,
)
def test_head_dims(tier, head_dim, v_head_dim, dtype):
    check(tier, *harness.inputs(18, 35, head_dim, v_head_dim=v_head_dim, heads=1, dtype=dtype))


# Features.


@TIERS
@pytest.mark.parametrize("mask_dtype", MASK_DTYPES, ids=str)
def test_everything_at_once(mask_dtype, tier):
    dtype = torch.float32 if mask_dtype == torch.bool else mask_dtype
    mask = testing.randn(2, 1, 21, 45, seed=7)
    mask = mask > -0.5 if mask_dtype == torch.bool else mask.masked_fill(mask < -0.5, -math.inf).to(mask_dtype)
    check(
        tier, *harness.inputs(21, 45, 20, batch=2, heads=4, kv_heads=2, v_head_dim=24, dtype=dtype),
        attn_mask=testing.lay_out(mask, "transposed"), causal="lower_right", window=(20, 4), scale=0.3, softcap=2.0,
        sinks=testing.lay_out(testing.randn(4, seed=1), "gapped"), alibi_slopes=testing.randn(2, 4, seed=2).abs(),
    )  # fmt: skip


@TIERS
def test_masks(tier):
    """Broadcast in every way, gapped, hiding whole tiles, rows and everything."""
    query, key, value = harness.inputs(40, 70, 16, heads=2)
    visible = testing.randn(2, 40, 70, seed=3) > 0
    visible[:, :, :33] = False
    visible[1, 17] = False
    for mask in (
        visible, visible[:1], visible[0, 0], visible[:, :, :1], visible[:, :1], visible[..., ::2].repeat(1, 1, 2),
        testing.lay_out(visible, "gapped"), testing.lay_out(visible, "transposed"), torch.zeros(70, dtype=torch.bool),
        torch.arange(70) >= 67,
    ):  # fmt: skip
        out, lse, _ = check(tier, query, key, value, attn_mask=mask)
        nothing = ~mask.expand(1, 2, 40, 70).any(-1)
        assert (out[nothing] == 0).all() and (lse[nothing] == -math.inf).all() and lse[~nothing].isfinite().all()


@TIERS
def test_the_lowest_finite_value_does_not_hide(tier):
    query, key, value = harness.inputs(20, 40, 16, heads=1)
    mask = torch.zeros(20, 40)
    mask[3] = torch.finfo(torch.float32).min
    out, lse = results(CAPS[tier], query, key, value, attn_mask=mask)
    mean = value.double().mean(2)
    testing.assert_close(out[:, :, 3], mean, testing.allowed_error(0, mean, torch.float32))
    assert lse.isfinite().all()


@pytest.mark.emulated_only
@TIERS
def test_a_float64_mask_is_taken_as_float32(tier):
    case = harness.inputs(20, 40, 16, heads=1)
    mask = testing.randn(20, 40, seed=5).masked_fill(testing.randn(20, 40) < 0, -math.inf)
    want = results(CAPS[tier], *case, attn_mask=mask)
    with emulated(CAPS[tier]):
        raw = torch.ops.torch_mtl4.flash_attention(*case, mask.double())
    for got in (results(CAPS[tier], *case, attn_mask=mask.double()), raw):
        testing.assert_equal(got[0], want[0])
        testing.assert_equal(got[1], want[1])


# Values that are not finite.


@TIERS
def test_nan_reaches_the_rows_that_see_it_and_no_others(tier):
    for where in ("query", "key", "value"):
        tensors = dict(zip(("query", "key", "value"), harness.inputs(40, 40, 16, layout="dense"), strict=True))
        clean, _ = results(CAPS[tier], *tensors.values(), causal="upper_left")
        tensors[where][0, 1, 33, 5] = math.nan
        out, lse = results(CAPS[tier], *tensors.values(), causal="upper_left")
        testing.assert_equal(out[:, 0], clean[:, 0])
        sees = torch.arange(40) == 33 if where == "query" else torch.arange(40) >= 33
        # Values that causal hides may reach a row whose tile holds them.
        rest = ~sees if where != "value" else torch.zeros(40, dtype=torch.bool)
        testing.assert_equal(out[0, 1, rest], clean[0, 1, rest])
        assert out[0, 1, sees][:, 5].isnan().all()
        assert where == "value" or lse[0, 1, sees].isnan().all()


@TIERS
@pytest.mark.parametrize("hidden_by", ["mask", "window"])
def test_a_hidden_key_is_skipped_whatever_it_holds(hidden_by, tier):
    query, key, value = harness.inputs(40, 40, 16, layout="dense")
    visible = torch.ones(40, 40, dtype=torch.bool)
    visible[:, 35] = False
    options = {"attn_mask": visible} if hidden_by == "mask" else {"window": (3, 0)}
    rows = slice(0, 40 if hidden_by == "mask" else 35)
    clean, _ = results(CAPS[tier], query, key, value, **options)
    for bad in (math.nan, math.inf):
        key[:, :, 35] = bad
        testing.assert_equal(results(CAPS[tier], query, key, value, **options)[0][:, :, rows], clean[:, :, rows])


@TIERS
def test_rows_that_see_nothing_beside_values_that_are_not_finite(tier):
    query, key, value = harness.inputs(20, 40, 16, heads=1)
    value[:, :, 7] = math.nan
    mask = torch.ones(20, 40, dtype=torch.bool)
    mask[5] = False
    out, lse = results(CAPS[tier], query, key, value, attn_mask=mask)
    assert (out[:, :, 5] == 0).all() and (lse[:, :, 5] == -math.inf).all()
    assert out[:, :, 6].isnan().all()


# What the runner can vary, and what it counts.


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_cooperative_tensors(layout):
    visible = testing.randn(20, 67, seed=3) > 0
    for dtype, options in ((torch.float16, {}), (torch.float32, {}), (torch.float32, {"attn_mask": visible})):
        case = harness.inputs(20, 67, 24, v_head_dim=40, heads=1, dtype=dtype)
        for shuffle in (False, True):
            check("tensor_ops", *case, causal="lower_right", layout=layout, shuffle=shuffle, **options)


def test_orders_of_threads():
    visible = testing.randn(20, 67, seed=3) > 0
    for seed in (1, 2, 3):
        case = harness.inputs(20, 67, 24, heads=1, seed=seed)
        check("simdgroup", *case, shuffle=True, seed=seed)
        check("simdgroup", *case, attn_mask=visible, shuffle=True, seed=seed)


@TIERS
def test_tiles_that_nobody_sees_are_skipped(tier):
    query, key, value = harness.inputs(64, 128, 16, heads=1)

    def work(**options):
        _, _, emulation = check(tier, query, key, value, **options)
        return emulation.dispatches[0][1].simdgroup_operations

    visible = torch.zeros(64, 128, dtype=torch.bool)
    visible[:, 64:96] = True
    assert work(causal="upper_left") < 0.6 * work()
    assert work(window=(8, 8)) < 0.6 * work()
    assert work(attn_mask=visible) < 0.6 * work(attn_mask=visible | True)


@TIERS
def test_empty_sizes(tier):
    for shape in ((0, 2, 9, 4), (2, 2, 0, 4), (2, 2, 9, 0)):
        batch, heads, q_len, kv_len = shape
        case = harness.inputs(q_len, kv_len, 8, batch=batch, heads=heads, v_head_dim=5, layout="dense")
        with emulated(CAPS[tier]):
            out, lse = flash_attention(*case, return_lse=True)
        assert out.shape == (batch, heads, q_len, 5) and lse.shape == (batch, heads, q_len)
        assert (out == 0).all() and (lse == -math.inf).all()
