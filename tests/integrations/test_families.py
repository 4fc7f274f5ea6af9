"""attn_implementation="mtl4" against eager, on tiny random models of many families."""

import pytest
import tiny_models as tiny
import torch
from tiny_models import assert_as_accurate, left_padding, run_three, token_ids

import torch_mtl4

DECODERS = {**tiny.DECODERS, **tiny.MORE_DECODERS}
OTHERS = {**tiny.ENCODERS, **tiny.ENCODER_DECODERS, "sam3": tiny.SAM3}


@pytest.mark.parametrize("name", [*DECODERS, *OTHERS])
def test_outputs(name):
    ours, eager, truth, model = run_three({**DECODERS, **OTHERS}[name])
    assert_as_accurate(ours, eager, truth)
    report = torch_mtl4.report(model)
    assert report.fused_calls > 0 and report.unfused_calls == 0 and not report.bypassing


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batch(name, side):
    mask = left_padding(2, 12) if side == "left" else left_padding(2, 12).flip(1)
    ours, eager, truth, _ = run_three(DECODERS[name], {"input_ids": token_ids(2, 12), "attention_mask": mask})
    assert ours.isfinite().all()
    assert_as_accurate(ours[mask.bool()], eager[mask.bool()], truth[mask.bool()])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "gemma2", "whisper"])
def test_half_precision(name, dtype):
    ours, eager, truth, _ = run_three({**DECODERS, **OTHERS}[name], dtype=dtype)
    assert_as_accurate(ours, eager, truth)


def test_packed_sequences_do_not_see_each_other():
    """Position ids that start again, no mask: what padding-free training sends."""
    first, second = token_ids(1, 5), token_ids(1, 7, seed=2)
    packed = {
        "input_ids": torch.cat([first, second], 1),
        "position_ids": torch.tensor([[*range(5), *range(7)]]),
        "use_cache": False,
    }
    model = tiny.set_attention(tiny.DECODERS["llama"].build(), "mtl4")
    with torch.no_grad():
        together = model(**packed).logits
        apart = torch.cat([model(ids).logits for ids in (first, second)], 1)
        eager = tiny.set_attention(model, "eager")(**packed).logits
        truth = tiny.in_double(model, packed)
    assert_as_accurate(together, eager, truth)
    assert_as_accurate(apart, eager, truth)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_own_four_dimensional_mask(dtype):
    """A user's mask is used as it is: here, every token also sees one token of its future."""
    keep = torch.ones(12, 12).tril(1).bool()[None, None].expand(2, 1, 12, 12)
    mask = keep if dtype == torch.bool else torch.zeros(2, 1, 12, 12).masked_fill(~keep, torch.finfo(dtype).min)
    model = tiny.set_attention(tiny.DECODERS["llama"].build(), "mtl4")
    ids = token_ids(2, 12)
    with torch.no_grad():
        ours, causal = model(ids, attention_mask=mask).logits, model(ids).logits
        float_mask = torch.zeros(2, 1, 12, 12).masked_fill(~keep, torch.finfo(torch.float32).min)
        eager = tiny.set_attention(model, "eager")(ids, attention_mask=float_mask).logits
        truth = tiny.in_double(model, {"input_ids": ids, "attention_mask": float_mask})
    assert_as_accurate(ours, eager, truth)
    assert (ours - causal).abs().max() > 0.1


@pytest.mark.parametrize("name", ["mistral", "gpt_oss"])
def test_window_and_sinks_matter(name):
    """The families' own features change the result, so that dropping one would not go unnoticed above."""
    model = tiny.set_attention(tiny.DECODERS[name].build(), "mtl4")
    ids = token_ids(1, 12)
    with torch.no_grad():
        with_feature = model(ids).logits
        if name == "mistral":
            model.config.sliding_window = 64
        else:
            for layer in model.model.layers:
                layer.self_attn.sinks.fill_(-100)
        without = model(ids).logits
    assert (with_feature - without).abs().max() > 0.1


def test_output_attentions_are_exact():
    model = tiny.DECODERS["llama"].build()
    inputs = {"input_ids": token_ids(2, 8), "attention_mask": left_padding(2, 8, 2), "output_attentions": True}
    with torch.no_grad():
        eager = tiny.set_attention(model, "eager")(**inputs).attentions
        ours = tiny.set_attention(model, "mtl4")(**inputs).attentions
    seen = inputs["attention_mask"].bool()
    for a, b in zip(ours, eager, strict=True):
        torch.testing.assert_close(a.transpose(1, 2)[seen], b.transpose(1, 2)[seen])
    reasons = [m.calls.unfused for m in torch_mtl4.report(model).attention]
    assert all(r == {"output_attentions": 1} for r in reasons)
