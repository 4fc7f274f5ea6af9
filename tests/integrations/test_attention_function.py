"""The attention and mask functions called directly: every argument that models pass, and the traps between them."""

import warnings

import pytest
import torch
from torch import nn

import torch_mtl4
from torch_mtl4 import testing
from torch_mtl4.integrations import masks
from torch_mtl4.integrations.attention import attention_forward
from torch_mtl4.integrations.explicit import explicit_attention

B, H, HKV, LQ, LK, D, DV = 2, 4, 2, 5, 9, 16, 12


class Module(nn.Module):
    def __init__(self, is_causal=False, **attributes):
        super().__init__()
        self.is_causal = is_causal
        self.__dict__.update(attributes)


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def qkv(lq=LQ, lk=LK, batch=B, dtype=torch.float32):
    """q as a transposed view, k and v contiguous: how they come from a cache."""
    q = randn(batch, lq, H, D, dtype=dtype).transpose(1, 2)
    return q, randn(batch, HKV, lk, D, seed=1, dtype=dtype), randn(batch, HKV, lk, DV, seed=2, dtype=dtype)


def truth(q, k, v, dtype=torch.float64, **options):
    """Attention written out, with a float mask of everything that hides."""
    sinks, bias, keep, softcap = (options.get(name) for name in ("sinks", "bias", "keep", "softcap"))
    q, k, v = q.to(dtype), k.to(dtype).repeat_interleave(H // HKV, 1), v.to(dtype).repeat_interleave(H // HKV, 1)
    logits = q @ k.mT * options.get("scale", D**-0.5)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    if bias is not None:
        logits = logits + bias.to(dtype)
    if keep is not None:
        logits = logits.masked_fill(~keep, -torch.inf)
    if sinks is not None:
        logits = torch.cat([logits, sinks.to(dtype).view(1, H, 1, 1).expand(*logits.shape[:3], 1)], -1)
    weights = logits.softmax(-1).nan_to_num(0.0)[..., : k.shape[2]]
    return (weights @ v).transpose(1, 2)


def check(out, q, k, v, **options):
    """The tolerance policy, with the same formula in the inputs' own dtype as PyTorch's path."""
    close(out, truth(q, k, v, **options), truth(q, k, v, dtype=v.dtype, **options))


def call(q, k, v, mask=None, module=None, **options):
    out, weights = attention_forward(Module() if module is None else module, q, k, v, mask, **options)
    assert out.is_contiguous() and out.shape == (q.shape[0], q.shape[2], q.shape[1], v.shape[3])
    assert weights is None
    return out


def close(out, want, baseline=None):
    baseline = want.to(out.dtype) if baseline is None else baseline
    testing.assert_close(out, want, testing.allowed_error(testing.error_of(baseline, want), want, out.dtype))


def lower_right(lq, lk):
    return torch.ones(lq, lk).tril(lk - lq).bool()


CASES = {
    "scaling": ({"scaling": 0.45}, {"scale": 0.45}),
    "scaling-one": ({"scaling": 1.0}, {"scale": 1.0}),
    "softcap": ({"softcap": 1.5}, {"softcap": 1.5}),
    "softcap-off": ({"softcap": 0}, {}),
    "s_aux": ({"s_aux": randn(H, seed=5)}, {"sinks": randn(H, seed=5)}),
    "sinks": ({"sinks": randn(H, seed=5)}, {"sinks": randn(H, seed=5)}),
    "position_bias": ({"position_bias": randn(1, H, LQ, LK, seed=6)}, {"bias": randn(1, H, LQ, LK, seed=6)}),
    "is_causal": ({"is_causal": True}, {"keep": lower_right(LQ, LK)}),
    "is_causal-over-module": ({"is_causal": False, "module": Module(is_causal=True)}, {}),
    "module-is-causal": ({"module": Module(is_causal=True)}, {"keep": lower_right(LQ, LK)}),
    "module-without-is_causal": ({"module": nn.Identity()}, {"keep": lower_right(LQ, LK)}),
    "window": (
        {"is_causal": True, "sliding_window": 3},
        {"keep": lower_right(LQ, LK) & ~lower_right(LQ, LK).roll(-3, 1).where(torch.arange(LK) < LK - 3, False)},
    ),
    "dropout-0": ({"dropout": 0.0}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_argument(name):
    options, expected = CASES[name]
    q, k, v = qkv()
    check(call(q, k, v, **options), q, k, v, **expected)


def test_window_counts_the_token_itself():
    q, k, v = qkv(lq=LK)
    position = torch.arange(LK)
    keep = (position[:, None] - position >= 0) & (position[:, None] - position < 3)
    check(call(q, k, v, is_causal=True, sliding_window=3), q, k, v, keep=keep)


def test_a_mask_beats_is_causal_and_window():
    """CLIP's text tower passes a padding mask with the causal part in it, and is_causal=True besides."""
    q, k, v = qkv()
    mask = (torch.arange(B * LQ * LK) % 3 != 0).view(B, 1, LQ, LK)
    check(call(q, k, v, mask, is_causal=True, sliding_window=2), q, k, v, keep=mask)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.bfloat16, torch.float64])
def test_mask_with_stride_0_and_longer_than_the_keys(dtype):
    q, k, v = qkv()
    keep = (torch.arange(LQ * (LK + 4)) % 3 != 0).view(1, 1, LQ, LK + 4).expand(B, 1, LQ, LK + 4)
    mask = (
        keep if dtype == torch.bool else torch.zeros((), dtype=dtype).masked_fill(~keep[:1], -torch.inf).expand_as(keep)
    )
    assert mask.stride(0) == 0
    check(call(q, k, v, mask), q, k, v, keep=keep[..., :LK])


def test_rows_of_padding():
    """A row without a key gives 0; a row of the lowest finite value gives the mean of the values."""
    q, k, v = qkv()
    keep = torch.ones(B, 1, LQ, LK, dtype=torch.bool)
    keep[0, :, :2] = False
    out = call(q, k, v, keep)
    assert out[0, :2].eq(0).all()
    check(out, q, k, v, keep=keep)
    out = call(q, k, v, torch.zeros(keep.shape).masked_fill(~keep, torch.finfo(torch.float32).min))
    close(out[0, 0], v[0].mean(1).repeat_interleave(H // HKV, 0))


@pytest.mark.parametrize("mask_dtype", [None, torch.bool, torch.float32])
def test_position_bias_of_any_strides_and_dtype_with_a_mask(mask_dtype):
    q, k, v = qkv(dtype=torch.bfloat16)
    bias = randn(1, LK, LQ, H, seed=6).permute(0, 3, 2, 1).requires_grad_()
    keep = lower_right(LQ, LK).expand(B, 1, LQ, LK)
    mask = {None: None, torch.bool: keep, torch.float32: torch.zeros(keep.shape).masked_fill(~keep, -torch.inf)}
    out = call(q, k, v, mask[mask_dtype], position_bias=bias, is_causal=True)
    want, baseline = (truth(q, k, v, dtype, bias=bias, keep=keep) for dtype in (torch.float64, torch.bfloat16))
    close(out, want, baseline)
    gradients = [torch.autograd.grad(o.double().square().sum(), bias)[0] for o in (out, want, baseline)]
    # The gradient is float32, as the bias is, but of bfloat16 precision.
    allowed = testing.allowed_error(testing.error_of(gradients[2], gradients[1]), gradients[1], torch.bfloat16)
    testing.assert_close(gradients[0], gradients[1], allowed)


def test_bias_mask_and_sinks_get_their_gradients():
    q, k, v = qkv()
    leaves = [randn(B, 1, LQ, LK, seed=7), randn(1, H, LQ, LK, seed=8), randn(H, seed=9), q.detach(), k, v]
    leaves = [t.requires_grad_() for t in leaves]
    mask, bias, sinks, q, k, v = leaves
    ours = call(q, k, v, mask, position_bias=bias, s_aux=sinks, softcap=2.0)
    written = [truth(q, k, v, t, bias=mask + bias, sinks=sinks, softcap=2.0) for t in (torch.float64, torch.float32)]
    gradients = (torch.autograd.grad(o.double().square().sum(), leaves) for o in (ours, *written))
    for got, want, baseline in zip(*gradients, strict=True):
        close(got, want, baseline)


@pytest.mark.parametrize("masked", [False, True])
def test_indices(masked):
    """A sparse attention's selection is part of the mask; duplicates and -1 are legal entries."""
    q, k, v = qkv()
    indices = torch.tensor([[0, 2, 2], [1, -1, 3], [8, 0, 4], [5, 6, 7], [4, 4, 4]], dtype=torch.int32).expand(B, LQ, 3)
    named = torch.zeros(LQ, LK, dtype=torch.bool)
    for row, columns in enumerate(indices[0].tolist()):
        named[row, [c for c in columns if c >= 0]] = True
    mask = lower_right(LQ, LK).expand(B, 1, LQ, LK) if masked else None
    keep = named & lower_right(LQ, LK)
    check(call(q, k, v, mask, indices=indices, is_causal=True), q, k, v, keep=keep)


def test_block_indices():
    q, k, v = qkv()
    module = Module(is_causal=True, indexer=Module(block_size=4))
    block_indices = torch.tensor([[[0, -1], [0, 2], [1, -1], [2, 0], [1, 2]], [[2, -1]] * 5]).expand(B, 2, 5, 2)
    keep = torch.zeros(H, LQ, LK, dtype=torch.bool)
    for head in range(H):
        for row, blocks in enumerate(block_indices[0, head // 2].tolist()):
            for block in blocks:
                if block >= 0:
                    keep[head, row, 4 * block : 4 * block + 4] = True
    keep &= lower_right(LQ, LK)
    check(call(q, k, v, module=module, block_indices=block_indices), q, k, v, keep=keep)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_packed_sequences(causal, masked):
    """Each sequence alone gives the same rows. The second has fewer queries than keys, as with a cache."""
    q, k, v = qkv(lq=7, lk=9, batch=1)
    cu_q, cu_k = torch.tensor([0, 3, 7], dtype=torch.int32), torch.tensor([0, 3, 9], dtype=torch.int32)
    mask = None
    if masked:
        if causal:
            pytest.skip("a mask holds the causal part itself")
        mask = torch.ones(1, 1, 7, 9, dtype=torch.bool)
        mask[..., 4] = False
    out = call(q, k, v, mask, is_causal=causal, cu_seq_lens_q=cu_q, cu_seq_lens_k=cu_k, max_length_q=4, max_length_k=6)
    for rows, keys in ((slice(0, 3), slice(0, 3)), (slice(3, 7), slice(3, 9))):
        alone = [q[:, :, rows], k[:, :, keys], v[:, :, keys]]
        part = None if mask is None else mask[..., rows, keys]
        close(out[:, rows], call(*alone, part, is_causal=causal))


def test_packed_sequences_in_a_batch_are_refused():
    cu = torch.tensor([0, 5])
    with pytest.raises(NotImplementedError, match="expected batch 1 with cu_seq_lens_q, got 2"):
        call(*qkv(), cu_seq_lens_q=cu, cu_seq_lens_k=cu)


@pytest.mark.parametrize("shape", [(H,), (1, H, 1, 1), (B, H, 1, 1)])
def test_head_mask_of_whole_heads_stays_on_the_kernel(shape):
    q, k, v = qkv()
    module, head_mask = Module(), randn(*shape, seed=4)
    out = call(q, k, v, module=module, head_mask=head_mask)
    scale = head_mask.view(1, -1, 1, 1) if len(shape) == 1 else head_mask
    close(out, truth(q, k, v) * scale.transpose(1, 2))
    assert torch_mtl4.report(module).fused_calls == 1


def test_head_mask_within_a_head():
    q, k, v = qkv()
    module, head_mask = Module(), randn(1, H, LQ, LK, seed=4)
    options = {"attn_mask": None, "causal": None, "window": None, "scale": D**-0.5, "softcap": None, "sinks": None}
    _, weights = explicit_attention(q.double(), k.double(), v.double(), **options)
    expected = (weights * head_mask) @ v.double().repeat_interleave(2, 1)
    close(call(q, k, v, module=module, head_mask=head_mask), expected.transpose(1, 2))
    assert torch_mtl4.report(module).attention[0].calls.unfused == {"a head_mask that varies within a head": 1}


def test_output_attentions():
    q, k, v = qkv()
    keep = lower_right(LQ, LK).expand(B, 1, LQ, LK)
    out, weights = attention_forward(Module(), q, k, v, keep, output_attentions=True, s_aux=randn(H, seed=5))
    check(out, q, k, v, keep=keep, sinks=randn(H, seed=5))
    assert weights.shape == (B, H, LQ, LK) and weights[~keep.expand_as(weights)].eq(0).all()
    assert (weights.sum(-1) < 1).all()


def test_mixed_dtypes_take_the_values():
    q, k, v = qkv()
    out = call(q, k, v.bfloat16())
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, call(q.bfloat16(), k.bfloat16(), v.bfloat16()))


def test_autocast_wins_over_all():
    q, k, v = qkv()
    with torch.autocast("cpu", torch.bfloat16):
        out = call(q, k, v)
    assert torch.equal(out, call(q.bfloat16(), k.bfloat16(), v.bfloat16()))


def test_float64_takes_the_explicit_path():
    q, k, v = (t.double() for t in qkv())
    module = Module()
    torch.testing.assert_close(call(q, k, v, module=module), truth(q, k, v))
    assert torch_mtl4.report(module).attention[0].reason == "1 calls: dtype float64"


@pytest.mark.parametrize("how", ["attribute", "environment"])
def test_strict(how, monkeypatch):
    module = Module()
    if how == "attribute":
        module._mtl4_strict = True
    else:
        monkeypatch.setenv("TORCH_MTL4_STRICT", "1")
    call(*qkv(), module=module)
    with pytest.raises(
        NotImplementedError, match=r"expected a call that the kernel takes \(strict mode\), got dropout 0"
    ):
        call(*qkv(), module=module, dropout=0.1)


def test_unknown_arguments_warn_once():
    with pytest.warns(UserWarning, match="ignored mystery_bias"):
        call(*qkv(), mystery_bias=torch.ones(1), position_ids=torch.arange(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(*qkv(), mystery_bias=torch.ones(1), use_cache=True, unknown_but_none=None)


def test_flat_masks_are_refused():
    with pytest.raises(ValueError, match=r"expected attention_mask with 4 dimensions, got \[2, 9\]"):
        call(*qkv(), torch.ones(B, LK, dtype=torch.bool))


def test_broadcast_strides_beyond_32_bits():
    """Continuous batching sends masks whose size-1 dimensions have strides past 2**31."""
    q, k, v = qkv(batch=1)
    mask = randn(LQ, LK, seed=3)
    mask = mask.as_strided((1, 1, LQ, LK), (3_600_000_000, 3_600_000_000, LK, 1))
    check(call(q, k, v, mask), q, k, v, bias=mask)


def explicit_and_reference(seed):
    q, k, v = (t.double() for t in qkv())
    options = {
        "attn_mask": [None, lower_right(LQ, LK)[None, None], randn(1, H, LQ, LK, dtype=torch.float64)][seed % 3],
        "causal": [None, "lower_right", "upper_left"][seed // 3],
        "window": [None, (2, 1)][seed % 2],
        "scale": 0.3,
        "softcap": [None, 2.0][seed % 2],
        "sinks": [None, randn(H, dtype=torch.float64)][seed // 3 % 2],
    }
    return q, k, v, options


@pytest.mark.parametrize("seed", range(9))
def test_the_explicit_path_is_the_reference(seed):
    from torch_mtl4 import reference

    q, k, v, options = explicit_and_reference(seed)
    out, _ = explicit_attention(q, k, v, **options)
    torch.testing.assert_close(
        out, reference.flash_attention.flash_attention(q, k, v, **options), rtol=1e-12, atol=1e-12
    )


def sdpa_mask(**arguments):
    return pytest.importorskip("transformers.masking_utils").sdpa_mask(**arguments)


@pytest.mark.parametrize(
    ("lengths", "none"),
    [
        ({"q_length": 5, "kv_length": 5}, True),
        ({"q_length": 1, "kv_length": 9, "q_offset": 8}, True),
        ({"q_length": 3, "kv_length": 9, "q_offset": 6}, True),
        ({"q_length": 5, "kv_length": 16}, False),
        ({"q_length": 1, "kv_length": 16, "q_offset": 4}, False),
        ({"q_length": 3, "kv_length": 16, "q_offset": torch.tensor(6)}, False),
        ({"q_length": 5, "kv_length": 5, "allow_is_causal_skip": False}, False),
        ({"q_length": 9, "kv_length": 9, "local_size": 4}, False),
        ({"q_length": 3, "kv_length": 3, "local_size": 4}, True),
        ({"q_length": 3, "kv_length": 5, "q_offset": 6, "kv_offset": 4}, True),
        ({"q_length": 5, "kv_length": 5, "attention_mask": torch.ones(2, 5, dtype=torch.bool)}, True),
        ({"q_length": 5, "kv_length": 5, "attention_mask": torch.tensor([[0, 1, 1, 1, 1], [1] * 5]).bool()}, False),
        ({"q_length": 2, "kv_length": 5, "q_offset": 3, "attention_mask": torch.ones(2, 3, dtype=torch.bool)}, False),
    ],
)
def test_no_mask_only_where_the_last_query_sees_the_last_key(lengths, none):
    from tiny_models import VERSION_5

    if not VERSION_5:
        pytest.skip("transformers 4 passes positions, see the next test")
    mask = masks.create_mask(batch_size=2, **lengths)
    assert (mask is None) == none
    if mask is not None:
        assert torch.equal(mask, sdpa_mask(batch_size=2, **{**lengths, "allow_is_causal_skip": False}))


@pytest.mark.parametrize(
    ("positions", "options", "none"),
    [
        (range(5), {"kv_length": 5}, True),
        (range(8, 9), {"kv_length": 9}, True),
        (range(5), {"kv_length": 16}, False),
        (range(4, 7), {"kv_length": 7}, False),
        (range(8, 9), {"kv_length": 16, "allow_is_causal_skip": False}, False),
    ],
)
def test_no_mask_with_the_positions_of_transformers_4(positions, options, none):
    from tiny_models import VERSION_5

    if VERSION_5:
        pytest.skip("transformers 5 passes lengths, see the test before")
    mask = masks.create_mask(batch_size=2, cache_position=torch.tensor([*positions]), **options)
    assert (mask is None) == none
