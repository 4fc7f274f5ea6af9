"""Forward pass: sizes, dtypes, layouts, features, numerics. Masks, gradients, errors, tracing have their own files."""

import math

import pytest
import torch
from attention_harness import DTYPES, check, inputs, truth

from torch_mtl4 import flash_attention, testing

# Around the edges of the tiles that kernels use: 8, 16, 32, 64, 128.
LENGTHS = [(1, 1), (1, 33), (2, 5), (5, 2), (7, 8), (8, 7), (9, 17), (16, 16), (17, 15), (31, 33), (33, 31), (48, 63)]
LENGTHS += [(63, 64), (64, 65), (65, 129), (96, 127), (129, 64), (130, 257)]
HEAD_DIMS = [
    1,
    2,
    3,
    4,
    8,
    15,
    16,
    17,
    24,
    31,
    32,
    33,
    40,
    56,
    64,
    65,
    72,
    80,
    96,
    104,
    120,
    127,
    128,
    192,
    256,
    320,
    576,
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("q_len,kv_len", LENGTHS)
@pytest.mark.parametrize("causal", [None, "upper_left", "lower_right"])
def test_lengths(q_len, kv_len, causal, dtype):
    check(*inputs(q_len, kv_len, 24, dtype=dtype, seed=q_len), causal=causal)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_head_dims(head_dim, dtype):
    check(*inputs(19, 37, head_dim, dtype=dtype, seed=head_dim))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim,v_head_dim", [(32, 24), (4, 2), (192, 128), (32, 64), (1, 576), (576, 1), (65, 63)])
def test_value_head_dim_differs(head_dim, v_head_dim, dtype):
    out, _ = check(*inputs(16, 33, head_dim, v_head_dim=v_head_dim, heads=3, dtype=dtype))
    assert out.shape == (1, 3, 16, v_head_dim)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads,kv_heads", [(4, 4), (4, 2), (4, 1), (6, 3), (7, 1), (32, 2)])
@pytest.mark.parametrize("q_len", [1, 3, 20])
def test_grouped_heads(q_len, heads, kv_heads, dtype):
    check(*inputs(q_len, 37, 24, batch=2, heads=heads, kv_heads=kv_heads, dtype=dtype), causal="lower_right")


@pytest.mark.parametrize("layout", testing.LAYOUTS)
@pytest.mark.parametrize("changed", ["query", "key", "value", "all"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_strides_give_the_result_of_a_dense_copy(layout, changed, dtype):
    dense = inputs(33, 40, 64, batch=2, heads=3, dtype=dtype, layout="dense")
    laid = [
        testing.lay_out(t, layout) if changed in (name, "all") else t
        for name, t in zip(("query", "key", "value"), dense, strict=True)
    ]
    out, _ = check(*laid, causal="lower_right")
    if all(t.stride(-1) == 1 for t in laid):  # the same instructions in the same order
        testing.assert_equal(out, flash_attention(*dense, causal="lower_right"))


@pytest.mark.parametrize("q_len", range(1, 10))
@pytest.mark.parametrize("head_dim", [64, 96, 128])
def test_only_query_strided(q_len, head_dim):
    query, key, value = inputs(q_len, 45, head_dim, heads=3, layout="dense")
    strided = query.transpose(1, 2).contiguous().transpose(1, 2)
    testing.assert_equal(flash_attention(strided, key, value), flash_attention(query, key, value))


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_slices_of_one_fused_buffer(offset, dtype):
    batch, length, heads, head_dim = 2, 35, 3, 24
    fused = testing.randn(batch, length + offset, 3, heads, head_dim, dtype=dtype)
    fused[:, :offset] = math.nan
    query, key, value = fused[:, offset:].permute(2, 0, 3, 1, 4).unbind(0)
    check(query, key, value, causal="upper_left")


def test_expanded_inputs():
    query, key, value = inputs(9, 20, 32, batch=1, heads=1)
    expanded = (t.expand(3, 4, -1, -1) for t in (query, key, value))
    out, _ = check(*expanded)
    testing.assert_equal(out, out[:1, :1].expand(3, 4, -1, -1))
    check(query.expand(1, 2, 9, 32), key[..., :1].expand(1, 1, 20, 32), value)


def test_output_layout_is_positions_before_heads():
    for shape in ((2, 3, 5, 8), (1, 3, 1, 8), (2, 1, 5, 8)):
        out, lse = flash_attention(*(testing.randn(*shape) for _ in range(3)), return_lse=True)
        assert out.transpose(1, 2).is_contiguous() and lse.is_contiguous()
    assert flash_attention(*(testing.randn(2, 3, 5, 8) for _ in range(3))).stride() == (120, 8, 24, 1)


# Decoding: lengths that are no multiple of what a kernel steps by, keys followed by poison.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kv_len", [1, 31, 33, 38, 39, 63, 65, 70, 257])
@pytest.mark.parametrize("q_len,head_dim", [(1, 64), (2, 96), (3, 128), (5, 64), (8, 128)])
def test_decode_reads_no_key_behind_the_last(q_len, kv_len, head_dim, dtype):
    query = testing.randn(1, 8, q_len, head_dim, dtype=dtype, seed=1)
    cache = testing.poison(2, 1, 8, kv_len + 64, head_dim, dtype=dtype)
    cache[:, :, :, :kv_len] = testing.randn(2, 1, 8, kv_len, head_dim, dtype=dtype, seed=2)
    key, value = cache[:, :, :, :kv_len]
    out, _ = check(query, key, value)
    testing.assert_equal(flash_attention(query, key, value), out)


@pytest.mark.parametrize("heads,kv_heads", [(32, 2), (32, 1), (32, 8), (6, 3)])
@pytest.mark.parametrize("kv_len", [511, 512, 513, 1023, 1024, 1025, 4096])
def test_long_decode_with_grouped_heads(heads, kv_heads, kv_len):
    query, key, value = inputs(1, kv_len, 128, heads=heads, kv_heads=kv_heads, dtype=torch.bfloat16, layout="permuted")
    out, _ = check(query, key, value)
    testing.assert_equal(flash_attention(query, key, value), out)


# Causal corners and windows.


def visible(q_len, kv_len, **options):
    """Which keys each query attends, found by giving every key a value of its own."""
    query = torch.zeros(1, 1, q_len, 4)
    key, value = torch.zeros(1, 1, kv_len, 4), torch.eye(kv_len)[None, None]
    return (flash_attention(query, key, value, **options)[0, 0] > 0).int().tolist()


def test_causal_corners():
    assert visible(2, 5, causal="upper_left") == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]
    assert visible(2, 5, causal="lower_right") == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert visible(3, 2, causal="upper_left") == [[1, 0], [1, 1], [1, 1]]
    assert visible(3, 2, causal="lower_right") == [[0, 0], [1, 0], [1, 1]]


def test_windows_count_from_the_diagonal():
    assert visible(2, 5, window=(1, 1)) == [[0, 0, 1, 1, 1], [0, 0, 0, 1, 1]]
    assert visible(2, 5, window=(1, 1), causal="upper_left") == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]
    assert visible(2, 5, window=(0, 0), causal="lower_right") == [[0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]
    assert visible(2, 5, window=(None, 0)) == visible(2, 5, causal="lower_right")
    assert visible(2, 5, window=(0, None)) == [[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]
    assert visible(9, 9, causal="lower_right", window=(3, 0))[8] == [0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_windows_that_equal_causal():
    query, key, value = inputs(16, 16, 16)
    causal = flash_attention(query, key, value, causal="upper_left")
    for window in ((-1, 0), (16, 0), (15, 0), (None, 0), (10**12, 0)):
        testing.assert_equal(flash_attention(query, key, value, window=window), causal)
    shorter = flash_attention(query, key, value, window=(14, 0))
    testing.assert_equal(shorter[:, :, :-1], causal[:, :, :-1])
    assert not torch.equal(shorter[:, :, -1], causal[:, :, -1])


@pytest.mark.parametrize("window", [(0, 0), (3, 0), (0, 5), (17, 33), (64, None), (None, 70), (9, 0), (200, 200)])
@pytest.mark.parametrize("causal", [None, "upper_left", "lower_right"])
@pytest.mark.parametrize("q_len,kv_len", [(70, 70), (33, 150), (150, 33), (1, 100)])
def test_windows(q_len, kv_len, window, causal):
    dtype = DTYPES[(q_len + sum(side or 1 for side in window)) % 3]
    check(*inputs(q_len, kv_len, 16, heads=1, dtype=dtype), window=window, causal=causal)


# Numerics.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("scale", [None, 1.0])
def test_large_products_do_not_overflow(head_dim, scale, dtype):
    query = key = torch.full((1, 1, 4, head_dim), 256.0 if head_dim == 64 else 200.0, dtype=dtype)
    value = testing.randn(1, 1, 4, 16, dtype=dtype)
    out, lse = flash_attention(query, key, value, scale=scale, return_lse=True)
    mean = value.double().mean(2, keepdim=True).expand(1, 1, 4, 16)
    testing.assert_close(out, mean, testing.allowed_error(0, mean, dtype))
    assert lse.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kv_len", [2048, 4096, 8192])
@pytest.mark.parametrize("q_len", [1, 3])
def test_long_row_sums_are_exact(q_len, kv_len, dtype):
    query, key = torch.zeros(1, 1, q_len, 8, dtype=dtype), testing.randn(1, 1, kv_len, 8, dtype=dtype)
    out, lse = flash_attention(query, key, torch.ones(1, 1, kv_len, 8, dtype=dtype), return_lse=True)
    testing.assert_equal(out, torch.ones_like(out))
    want = torch.full((1, 1, q_len), math.log(kv_len), dtype=torch.float64)
    testing.assert_close(lse, want, testing.allowed_error(0, want, torch.float32), "lse")


@pytest.mark.parametrize("scale", [1.0, 0.0, -0.7, 1e-6, 3.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scale_may_be_any_number(scale, dtype):
    check(*inputs(17, 70, 32, dtype=dtype), scale=scale)


def test_huge_logits_keep_the_largest():
    query, key, value = inputs(20, 70, 16)
    check(query * 100, key * 100, value)


@pytest.mark.cpu_only  # a bound on one order of adding
@pytest.mark.parametrize("head_dim", [256, 576])
def test_long_sums_round_no_more_than_they_must(head_dim):
    # One running sum of 576 products was up to 2.8 times as far off as allowed, at logits of this size.
    for seed in range(12):
        query, key, value = inputs(40, 70, head_dim, seed=seed)
        check(query * 30, key, value)


@pytest.mark.cpu_only  # docs/conventions.md lets a hidden value that is not finite reach rows of the same tile
@pytest.mark.parametrize("where", ["query", "key", "value"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_inf_reach_the_rows_that_see_them_and_no_others(where, bad, dtype):
    tensors = dict(zip(("query", "key", "value"), inputs(40, 40, 24, dtype=dtype, layout="dense"), strict=True))
    clean = flash_attention(**tensors, causal="upper_left")
    tensors[where][0, 1, 33, 5] = bad
    out = flash_attention(**tensors, causal="upper_left")
    testing.assert_equal(out[:, 0], clean[:, 0])
    testing.assert_equal(out[:, :, :33], clean[:, :, :33])
    if where == "query":
        testing.assert_equal(out[:, :, 34:], clean[:, :, 34:])
    spoiled = out[0, 1, 33] if where != "value" else out[0, 1, 33:, 5]
    if where == "value":
        assert (~spoiled.isfinite()).all()
    elif math.isnan(bad) or where == "query":
        assert spoiled.isnan().all()


# Features.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("softcap", [1.0, 2.0, 30.0])
@pytest.mark.parametrize("kv_len", [17, 33, 64, 65, 129])
def test_softcap_leaves_padding_out(kv_len, softcap, dtype):
    # With a cap this low, a padding key that is capped instead of hidden shifts the result by several percent.
    check(*inputs(5, kv_len, 64, dtype=dtype), softcap=softcap)


def test_softcap_comes_before_the_mask():
    query, key, value = inputs(4, 40, 16)
    mask = torch.ones(40, dtype=torch.bool)
    mask[20:] = False
    testing.assert_close(
        flash_attention(query, key, value, softcap=1.0, attn_mask=mask),
        truth(query, key[:, :, :20], value[:, :, :20], softcap=1.0)[0],
        testing.allowed_error(0, value.double(), torch.float32),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sink_dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("layout", ["dense", "gapped"])
def test_sinks(sink_dtype, layout, dtype):
    sinks = testing.lay_out(testing.randn(4, dtype=sink_dtype, seed=9), layout)
    check(*inputs(20, 37, 16, heads=4, kv_heads=2, dtype=dtype), sinks=sinks, causal="lower_right")


def test_sinks_of_every_size():
    query, key, value = inputs(5, 9, 16, heads=4)
    sinks = torch.tensor([-math.inf, -1e30, 0.0, 100.0])
    out, _ = check(query, key, value, sinks=sinks)
    plain = flash_attention(query, key, value)
    testing.assert_close(out[:, :2], plain[:, :2], testing.allowed_error(0, plain, torch.float32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slope_dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("causal", [None, "upper_left", "lower_right"])
@pytest.mark.parametrize("shape", [(12,), (2, 12)])
def test_alibi(shape, causal, slope_dtype, dtype):
    slopes = testing.lay_out(testing.randn(*shape, seed=5).abs().to(slope_dtype), "transposed")
    check(*inputs(9, 33, 32, batch=2, heads=12, dtype=dtype), alibi_slopes=slopes, causal=causal)


@pytest.mark.parametrize("heads", [12, 40])
def test_alibi_in_training_and_decoding_agree(heads):
    query, key, value = inputs(17, 17, 32, heads=heads)
    slopes = 2.0 ** -torch.arange(1, heads + 1)
    whole = flash_attention(query, key, value, alibi_slopes=slopes, causal="upper_left")
    step = flash_attention(query[:, :, -1:], key, value, alibi_slopes=slopes, causal="lower_right")
    testing.assert_close(step, whole[:, :, -1:], testing.allowed_error(0, whole, torch.float32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_everything_at_once(dtype):
    mask = testing.lay_out(testing.randn(2, 1, 21, 45, seed=7), "permuted")
    check(
        *inputs(21, 45, 40, batch=2, heads=4, kv_heads=2, v_head_dim=24, dtype=dtype),
        attn_mask=mask, causal="lower_right", window=(20, 4), scale=0.3, softcap=5.0,
        sinks=testing.randn(4, seed=1), alibi_slopes=testing.randn(2, 4, seed=2).abs(),
    )  # fmt: skip


# lse.


def test_lse_is_the_natural_logarithm():
    zero = torch.zeros(1, 1, 1, 4)
    assert flash_attention(zero, zero, zero, return_lse=True)[1].item() == 0
    two = zero.expand(1, 1, 2, 4)
    lse = flash_attention(zero, two, two, return_lse=True)[1].double()
    want = torch.full_like(lse, math.log(2))
    testing.assert_close(lse, want, testing.allowed_error(0, want, torch.float32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_merge_through_lse(dtype):
    query, key, value = inputs(9, 70, 32, dtype=dtype)
    want_out, want_lse = truth(query, key, value)
    parts = [
        flash_attention(query, k, v, return_lse=True)
        for k, v in zip(key.split([33, 37], 2), value.split([33, 37], 2), strict=True)
    ]
    lse = torch.logaddexp(parts[0][1], parts[1][1])
    out = sum((part_lse - lse).exp()[..., None] * part.float() for part, part_lse in parts)
    testing.assert_close(lse, want_lse, testing.allowed_error(0, want_lse, torch.float32), "lse")
    testing.assert_close(out, want_out, testing.allowed_error(0, want_out, dtype), "out")


# Empty sizes.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize(
    "batch,heads,q_len,kv_len", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0), (0, 0, 0, 0)]
)
def test_empty_sizes(batch, heads, q_len, kv_len, mask, dtype):
    query, key, value = inputs(q_len, kv_len, 8, batch=batch, heads=heads, v_head_dim=5, dtype=dtype, layout="dense")
    attn_mask = torch.ones(batch, heads, q_len, kv_len, dtype=torch.bool) if mask else None
    for causal in (None, "upper_left", "lower_right"):
        out, lse = flash_attention(query, key, value, attn_mask=attn_mask, causal=causal, return_lse=True)
        assert out.shape == (batch, heads, q_len, 5) and lse.shape == (batch, heads, q_len)
        assert (out == 0).all() and (lse == -math.inf).all()


def test_no_keys_but_a_sink():
    query, key, value = inputs(3, 0, 8, layout="dense")
    out, lse = flash_attention(query, key, value, sinks=torch.tensor([0.5, -1.0]), return_lse=True)
    assert (out == 0).all()
    testing.assert_equal(lse, torch.tensor([0.5, -1.0])[None, :, None].expand(1, 2, 3))


# The same answer every time.


@pytest.mark.parametrize("q_len,kv_len", [(1, 3000), (200, 130)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_the_thread_count(q_len, kv_len, dtype):
    query, key, value = inputs(q_len, kv_len, 64, heads=4, kv_heads=2, dtype=dtype)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            results.append(flash_attention(query, key, value, causal="lower_right", return_lse=True))
    finally:
        torch.set_num_threads(threads)
    for out, lse in results[1:]:
        testing.assert_equal(out, results[0][0], "out")
        testing.assert_equal(lse, results[0][1], "lse")


def test_a_row_does_not_depend_on_its_neighbours():
    query, key, value = inputs(70, 70, 32, heads=2)
    whole = flash_attention(query, key, value, causal="upper_left")
    changed = query.clone()
    changed[:, :, 1::2] *= 50
    again = flash_attention(changed, key, value, causal="upper_left")
    testing.assert_close(again[:, :, ::2], whole[:, :, ::2], testing.allowed_error(0, whole, torch.float32))


def test_a_soft_cap_below_every_float_still_caps():
    check(*inputs(5, 7, 8), softcap=1e-50)
