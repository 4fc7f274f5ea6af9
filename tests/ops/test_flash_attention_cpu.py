"""What only the CPU kernels can get wrong: tile edges on every instruction set, threads, memory, values nobody sees."""

import math
import os
import subprocess
import sys
from pathlib import Path

import attention_harness as harness
import pytest
import torch

import torch_mtl4
from torch_mtl4 import flash_attention, testing

PACKAGE = Path(torch_mtl4.__file__).resolve().parents[1]  # the one under test, which may be a build of its own
pytestmark = pytest.mark.cpu_only

ISAS = ("baseline", "neon", "avx2", "avx512", "avx512_bf16", "amx")
BQ, BK, STEP, MIN_SPLIT = 32, 256, 32, 512  # csrc/cpu/kernels/flash_attention.h
FEW_ROWS = 16  # csrc/cpu/flash_attention.cpp


def in_process(code, isa=None):
    # In the folder of the tests: python -c looks for modules where it starts.
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    if isa is not None:
        environment["TORCH_MTL4_CPU_ISA"] = isa
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=here)


def check_tile_edges():
    """Runs in a process of its own for each instruction set."""
    sizes = [
        *((q_len, kv_len) for q_len in (1, BQ - 1, BQ, BQ + 1) for kv_len in (1, STEP - 1, STEP, STEP + 1)),
        *((3, kv_len) for kv_len in (BK - 1, BK, BK + 1, MIN_SPLIT - 1, MIN_SPLIT, MIN_SPLIT + 1, 3 * MIN_SPLIT + 7)),
        (2 * BQ, BK), (2 * BQ + 1, BK + STEP + 1), (8 * BQ + 1, BK + 1),
    ]  # fmt: skip
    for dtype in harness.DTYPES:
        for n, (q_len, kv_len) in enumerate(sizes):
            dims = ((64, 64), (33, 15), (16, 40), (31, 65))[n % 4]
            options = {"causal": (None, "lower_right", "upper_left")[n % 3]}
            if n % 5 == 1:
                options["softcap"] = 2.0  # a padding lane that entered the softmax would weigh e^-2
            if n % 5 == 3:
                options["attn_mask"] = testing.randn(q_len, kv_len, seed=n) > -1
            case = harness.inputs(q_len, kv_len, dims[0], v_head_dim=dims[1], heads=4, kv_heads=2, dtype=dtype)
            harness.check(*case, **options)


def check_few_rows():
    """Queries of few rows, whose keys and values are used where they lie."""
    dims = ((128, 128), (64, 64), (1, 1), (7, 65), (33, 15), (80, 130), (31, 17), (130, 80))
    for dtype in harness.DTYPES:
        for rows in range(1, FEW_ROWS + 2):
            heads = (1, 2, 4)[rows % 3] if rows % 4 == 0 else 1
            kv_len = (1, 15, 17, 33, BK + 1, 2 * MIN_SPLIT + 3, 300)[rows % 7]
            head_dim, v_head_dim = dims[rows % len(dims)]
            options = {"causal": (None, "lower_right")[rows % 2]}
            if rows % 3 == 1:
                options |= {"window": (20, 5), "softcap": 3.0, "sinks": testing.randn(heads)}
            if rows % 3 == 2:
                options |= {"alibi_slopes": testing.randn(heads).abs(), "scale": -0.3}
            if rows % 5 == 3:
                options["attn_mask"] = testing.randn(rows // heads, kv_len, seed=rows) > 0.5
            layout = testing.LAYOUTS[rows % len(testing.LAYOUTS)]
            case = harness.inputs(
                rows // heads, kv_len, head_dim, v_head_dim=v_head_dim, heads=heads, kv_heads=1, dtype=dtype,
                layout=layout,
            )  # fmt: skip
            harness.check(*case, **options)


def check_few_rows_that_hide_what_is_not_finite():
    """Hidden keys and values inside a tile hold NaN and Inf; one value that some rows see is infinite."""
    for dtype in harness.DTYPES:
        for rows, layout in ((1, "dense"), (4, "poisoned"), (5, "transposed"), (16, "gapped")):
            query, key, value = harness.inputs(rows, 401, 40, v_head_dim=35, heads=1, dtype=dtype, layout=layout)
            mask = testing.randn(rows, 401, seed=rows) > 0
            hidden = testing.randn(401, seed=7) > 1
            mask[:, hidden] = False
            mask[:, 200], mask[0, 200] = False, True
            key[:, :, hidden], value[:, :, hidden] = 0, 0
            want = flash_attention(query, key, value, attn_mask=mask, return_lse=True)
            key[:, :, hidden] = math.nan
            value[:, :, hidden] = math.inf
            value[:, :, 200, 3] = -math.inf
            out, lse = flash_attention(query, key, value, attn_mask=mask, return_lse=True)
            want[0][:, :, 0, 3] = -math.inf
            testing.assert_equal(out, want[0], "out")
            testing.assert_equal(lse, want[1], "lse")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "check", [check_tile_edges, check_few_rows, check_few_rows_that_hide_what_is_not_finite], ids=lambda f: f.__name__
)
def test_kernels_of(isa, check):
    result = in_process(f"import test_flash_attention_cpu as t; t.{check.__name__}()", isa)
    if f"this machine has no {isa}" in result.stderr:
        pytest.skip(f"this machine has no {isa}")
    assert result.returncode == 0, result.stderr[-3000:]


@pytest.mark.parametrize("q_len", [1, 20, 70])
@pytest.mark.parametrize("dtype", harness.DTYPES)
def test_subnormals_are_themselves_or_zero(dtype, q_len):
    tiny = torch.finfo(dtype).tiny / 4
    query, key, value = harness.inputs(q_len, 40, 32, heads=1, dtype=dtype)
    key[0, 0, 7:9] = tiny
    value.fill_(tiny)
    value[..., 1] = 1
    out = flash_attention(query, key, value)
    flushed = out == 0 if dtype == torch.bfloat16 else torch.zeros_like(out, dtype=torch.bool)
    close = (out.double() / tiny - 1).abs() <= 2**-5
    assert (flushed | close)[..., torch.arange(32) != 1].all()
    testing.assert_close(out[..., 1], torch.ones(1, 1, q_len), testing.allowed_error(0, torch.ones(1), dtype))


@pytest.mark.parametrize("dtype", harness.DTYPES)
@pytest.mark.parametrize("q_len, kv_len", [(1, 5000), (4, 2049), (100, 700), (300, 300)])
def test_the_number_of_threads_changes_no_bit(q_len, kv_len, dtype):
    case = harness.inputs(q_len, kv_len, 64, heads=6, kv_heads=2, dtype=dtype)
    threads = torch.get_num_threads()
    try:
        results = []
        for n in (1, 2, 3, 2):
            torch.set_num_threads(n)
            results.append(flash_attention(*case, causal="lower_right", return_lse=True))
    finally:
        torch.set_num_threads(threads)
    for out, lse in results[1:]:
        testing.assert_equal(out, results[0][0], "out")
        testing.assert_equal(lse, results[0][1], "lse")


@pytest.mark.parametrize("dtype", harness.DTYPES)
def test_rows_do_not_depend_on_their_neighbours(dtype):
    """A block of rows gives each the bits that the same rows give in another block, among few rows and among many."""
    query, key, value = harness.inputs(70, 300, 40, dtype=dtype)
    many = flash_attention(query, key, value)
    for first, last in ((0, 17), (5, 40), (50, 70)):
        testing.assert_equal(flash_attention(query[:, :, first:last], key, value), many[:, :, first:last])
    few = flash_attention(query[:, :, :FEW_ROWS], key, value)
    for first, last in ((0, 1), (3, 10), (13, 16)):
        testing.assert_equal(flash_attention(query[:, :, first:last], key, value), few[:, :, first:last])


@pytest.mark.parametrize("dtype", harness.DTYPES)
def test_memory_does_not_grow_with_the_scores(dtype):
    """Scores of 16384 x 16384 would take 1 GiB in float32; the inputs, result and tiles take a few MiB."""
    code = f"""
import resource, torch, torch_mtl4
torch.set_num_threads(2)
q = torch.ones(1, 1, 16384, 64, dtype={dtype})
torch_mtl4.flash_attention(q[:, :, :64], q[:, :, :64], q[:, :, :64])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = torch_mtl4.flash_attention(q, q, q, causal="lower_right", window=(2048, -1))
mask = torch.ones(1, 1, 1, 16384, dtype=torch.bool).expand(1, 1, 16384, 16384)
torch_mtl4.flash_attention(q, q, q, attn_mask=mask, window=(300, 0))
assert (out == 1).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    result = in_process(code)
    assert result.returncode == 0, result.stderr[-2000:]
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(result.stdout) * unit < 64 * 2**20


@pytest.mark.parametrize("dtype", harness.DTYPES)
@pytest.mark.parametrize("kv_len, filled", [(128, 5), (700, 130), (700, 257), (2048, 600)])
@pytest.mark.parametrize("kind", ["bool", "expanded", "float"])
def test_an_unfilled_cache_is_not_read(kv_len, filled, kind, dtype):
    query, key, value = harness.inputs(3, kv_len, 64, heads=4, kv_heads=2, dtype=dtype)
    mask = torch.arange(kv_len) < filled
    want = flash_attention(query, key[:, :, :filled], value[:, :, :filled], return_lse=True)
    key[:, :, filled:] = math.nan
    value[:, :, filled:] = math.inf
    if kind == "float":
        mask = torch.zeros(kv_len, dtype=dtype).masked_fill(~mask, -math.inf)
    if kind == "expanded":
        mask = mask.expand(1, 4, 3, kv_len)
    out, lse = flash_attention(query, key, value, attn_mask=mask, return_lse=True)
    allowed = harness.allowed(query, key[:, :, :filled], value[:, :, :filled], *want)
    testing.assert_close(out, want[0], allowed[0], "out")
    testing.assert_close(lse, want[1], allowed[1], "lse")


@pytest.mark.parametrize("dtype", harness.DTYPES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_reach_only_the_rows_that_see_them(bad, dtype):
    q_len = kv_len = 80
    query, key, value = harness.inputs(q_len, kv_len, 32, v_head_dim=20, heads=1, dtype=dtype)
    mask = testing.randn(q_len, kv_len, seed=9) > 0
    clean = flash_attention(query, key, value, attn_mask=mask)
    value[0, 0, 50, 3] = bad
    out = flash_attention(query, key, value, attn_mask=mask)
    testing.assert_equal(out[..., torch.arange(20) != 3], clean[..., torch.arange(20) != 3])
    testing.assert_equal(out[0, 0, ~mask[:, 50], 3], clean[0, 0, ~mask[:, 50], 3])
    seen = out[0, 0, mask[:, 50], 3]
    assert torch.equal(seen, torch.full_like(seen, bad)) or (seen.isnan().all() and math.isnan(bad))


@pytest.mark.parametrize("dtype", harness.DTYPES)
def test_keys_and_queries_that_are_nan_reach_only_the_rows_that_meet_them(dtype):
    query, key, value = harness.inputs(70, 70, 32, heads=1, dtype=dtype)
    clean = flash_attention(query, key, value, causal="upper_left", return_lse=True)
    key[0, 0, 40, 1] = math.nan
    query[0, 0, 7, 2] = math.nan
    out, lse = flash_attention(query, key, value, causal="upper_left", return_lse=True)
    spoiled = (torch.arange(70) >= 40) | (torch.arange(70) == 7)
    assert out[0, 0, spoiled].isnan().all() and lse[0, 0, spoiled].isnan().all()
    testing.assert_equal(out[0, 0, ~spoiled], clean[0][0, 0, ~spoiled])
    testing.assert_equal(lse[0, 0, ~spoiled], clean[1][0, 0, ~spoiled])


def test_a_tensor_that_outlived_its_storage_raises():
    query, key, value = (t.clone() for t in harness.inputs(4, 4))
    key.untyped_storage().resize_(16)
    with pytest.raises(RuntimeError, match="expected key within its storage"):
        torch.ops.torch_mtl4.flash_attention(query, key, value)


def test_strides_that_no_element_uses_are_ignored():
    query, key, value = harness.inputs(1, 33, 16, heads=1)
    want = flash_attention(query, key, value)
    odd = query.as_strided(query.shape, (2**60, 2**61, 2**62, 1), query.storage_offset())
    testing.assert_equal(flash_attention(odd, key, value), want)
    one = key[..., :1].as_strided((1, 1, 33, 1), (7, 2**62, *key.stride()[2:3], 2**61), key.storage_offset())
    testing.assert_equal(
        flash_attention(query[..., :1], one, value), flash_attention(query[..., :1], key[..., :1].clone(), value)
    )
