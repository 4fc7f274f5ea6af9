"""What the kernels of flash_attention read and multiply, counted on the MSL runner: no byte and no product too many."""

import pytest
import torch

from torch_mtl4 import flash_attention, msl, msl_backend, testing

from .gpus import SIMDGROUP, TENSOR_OPS

CAPS = {"simdgroup": SIMDGROUP[0], "tensor_ops": TENSOR_OPS[0]}
TIERS = pytest.mark.parametrize("tier", CAPS)


def costs(caps, q_len, kv_len, *, heads=1, kv_heads=1, head_dim=64, **options):
    query, key = testing.randn(1, heads, q_len, head_dim), testing.randn(1, kv_heads, kv_len, head_dim)
    with msl_backend.emulated(caps, checked=False, count=True) as emulation:
        flash_attention(query, key, key.clone(), **options)
    return emulation.costs


def multiplied(cost):
    return sum(products.multiply_accumulates for products in cost.products.values())


def test_decoding_reads_keys_and_values_once_for_all_heads_that_share_them():
    """A block of eight rows at a time."""
    for q_len, heads, blocks in ((1, 2, 1), (1, 8, 1), (2, 8, 1), (2, 16, 2)):
        first, merge = costs(CAPS["simdgroup"], q_len, 600, heads=heads, kv_heads=2)
        for name in ("key", "value"):
            assert first.buffers[name].read == blocks * first.buffers[name].unique_read == blocks * 2 * 600 * 64 * 4
        # A partial result a row and split: 64 values, maximum and sum.
        assert first.buffers["partials"].written == q_len * heads * 3 * 66 * 4
        assert merge.buffers["partials"].unique_read == q_len * heads * 3 * 66 * 4


def test_an_emulation_that_does_not_count_has_no_costs():
    with msl_backend.emulated(CAPS["simdgroup"]) as emulation:
        flash_attention(*testing.randn(3, 1, 1, 1, 64).unbind())
    assert len(emulation.dispatches) == 1
    with pytest.raises(msl.MslError, match="count=True"):
        _ = emulation.costs


def test_decoding_with_a_window_reads_its_keys_only():
    (cost,) = costs(CAPS["simdgroup"], 1, 600, causal="lower_right", window=(99, 0))
    assert cost.buffers["key"].read == 100 * 64 * 4


def test_decoding_reads_no_key_that_the_mask_hides():
    mask = torch.arange(200) % 64 < 17
    (cost,) = costs(CAPS["simdgroup"], 1, 200, heads=4, attn_mask=mask)
    for name in ("key", "value"):
        assert cost.buffers[name].read == mask.sum() * 64 * 4


def test_decoding_exchanges_less_than_one_sum_for_each_row_and_key():
    """A sum over a simdgroup is five exchanges; here a row and a key take a little over two."""
    (cost,) = costs(CAPS["simdgroup"], 1, 256, heads=8)
    assert 2 < sum(cost.simdgroup_operations.values()) / (8 * 256) < 2.6


@pytest.mark.parametrize(
    ("head_dim", "heads", "rows", "team", "barriers"),
    [
        (64, 1, 1, 8, 1),
        (64, 4, 4, 2, 1),
        (64, 7, 8, 1, 1),
        (128, 4, 4, 2, 1),
        (128, 5, 8, 2, 3),
        (256, 1, 1, 8, 1),
        (256, 4, 4, 4, 3),
        (576, 2, 2, 8, 3),
    ],
)
def test_simdgroups_of_decoding_meet_once_for_the_rows_that_16_kib_hold(head_dim, heads, rows, team, barriers):
    """Eight simdgroups write their parts of those rows, and each row is merged by a team of them."""
    first, merge = costs(CAPS["simdgroup"], 1, 300, heads=heads, head_dim=head_dim)  # two splits
    assert first.threadgroup_barriers == 2 * barriers and merge.threadgroup_barriers == 0
    parts, max_and_sum = 2 * 8 * heads * head_dim * 4, 8
    assert first.threadgroup_written == parts + 2 * 8 * rows * max_and_sum
    assert first.threadgroup_read == parts + 2 * heads * team * 32 * max_and_sum
    assert first.threadgroup_memory == 8 * 4 * (8 // team * head_dim + 2 * rows)


def test_a_threadgroup_of_many_queries_reads_each_key_once():
    (cost,) = costs(CAPS["simdgroup"], 70, 100, heads=2)
    for name in ("key", "value"):
        assert cost.buffers[name].read == 2 * 3 * 100 * 64 * 4
    assert cost.buffers["query"].read == cost.buffers["query"].unique_read == 2 * 70 * 64 * 4


@TIERS
def test_products_are_those_of_the_tiles_that_are_seen(tier):
    rows, keys = {"simdgroup": (8, 32), "tensor_ops": (16, 32)}[tier]
    pair = rows * keys * 64 * 2  # both products of a tile of rows with a tile of keys
    (whole,) = costs(CAPS[tier], 128, 128)
    assert multiplied(whole) == 128 * 128 * 64 * 2
    (causal,) = costs(CAPS[tier], 128, 128, causal="upper_left")
    assert multiplied(causal) == sum(row // keys + 1 for row in range(0, 128, rows)) * pair
    visible = torch.zeros(128, 128, dtype=torch.bool)
    visible[:64, 40:50] = True
    (masked,) = costs(CAPS[tier], 128, 128, attn_mask=visible)
    assert multiplied(masked) == 64 // rows * pair
    assert masked.buffers["key"].unique_read == 32 * 64 * 4
