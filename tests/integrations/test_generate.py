"""Generation with every sort of cache: our tokens and logits against eager attention."""

import pytest
import tiny_models as tiny
import torch
from tiny_models import VERSION_5, assert_as_accurate, left_padding, set_attention, token_ids

import torch_mtl4

DECODERS = {**tiny.DECODERS, **tiny.MORE_DECODERS}
CACHES = {
    "dynamic": {},
    "static": {"cache_implementation": "static", "disable_compile": True},
    "none": {"use_cache": False},
}
if not VERSION_5:
    CACHES["hybrid"] = {"cache_implementation": "hybrid", "disable_compile": True}


def generate(model, name, batch=2, length=9, new=6, **options):
    set_attention(model, name)
    options = {"max_new_tokens": new, "do_sample": False, "pad_token_id": 0, **options}
    return model.generate(
        token_ids(batch, length), attention_mask=left_padding(batch, length), output_logits=True,
        return_dict_in_generate=True, **options,
    )  # fmt: skip


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", DECODERS)
def test_greedy(name, cache):
    if cache == "static" and name == "deepseek_v32":
        pytest.skip("its indexer has no static cache")
    if cache in ("static", "hybrid") and name == "deepseek_v3" and not VERSION_5:
        pytest.skip("static caches of transformers 4 have one head dim for keys and values")
    if cache == "none" and name not in ("llama", "gemma3"):
        pytest.skip("one family with and one without a window are enough here")
    model = DECODERS[name].build()
    eager, ours = (generate(model, attention, **CACHES[cache]) for attention in ("eager", "mtl4"))
    assert ours.sequences.tolist() == eager.sequences.tolist()
    for a, b in zip(ours.logits, eager.logits, strict=True):
        assert_as_accurate(a, b, b)
    assert torch_mtl4.report(model).unfused_calls == 0


@pytest.mark.parametrize("name", ["llama", "gemma3"])
@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3},
        {"num_beams": 3, "num_return_sequences": 2, "cache_implementation": "static", "disable_compile": True},
        {"prefill_chunk_size": 4},
    ],
    ids=["beams", "beams-static", "chunked-prefill"],
)
def test_search_and_chunks(name, options):
    model = DECODERS[name].build()
    eager, ours = (generate(model, attention, **options) for attention in ("eager", "mtl4"))
    assert ours.sequences.tolist() == eager.sequences.tolist()


def test_prompt_lookup():
    model = DECODERS["llama"].build()
    ids = token_ids(1, 6).repeat(1, 3)
    options = {"prompt_lookup_num_tokens": 3, "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    options["eos_token_id"] = 1
    eager, ours = (set_attention(model, n).generate(ids, **options) for n in ("eager", "mtl4"))
    assert ours.tolist() == eager.tolist()


@pytest.mark.parametrize("name", ["whisper", "t5"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 2}], ids=["greedy", "beams"])
def test_encoder_decoder(name, options):
    family = tiny.ENCODER_DECODERS[name]
    model = family.build()
    inputs = {k: v for k, v in family.inputs().items() if k != "decoder_input_ids"}
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0, **options}
    eager, ours = (set_attention(model, n).generate(**inputs, **options) for n in ("eager", "mtl4"))
    assert ours.tolist() == eager.tolist()


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3", "gpt_oss"])
def test_static_cache_full_of_nan(name):
    """Slots that were never written are not read: prompt, a further chunk, then single tokens."""
    from transformers import DynamicCache, StaticCache

    model = set_attention(DECODERS[name].build(), "mtl4")
    ids = token_ids(1, 14)
    static, dynamic = StaticCache(config=model.config, max_cache_len=64), DynamicCache(config=model.config)
    poison(static, model)
    start = 0
    with torch.no_grad():
        for stop in (7, 12, 13, 14):
            step = {"input_ids": ids[:, start:stop], "use_cache": True}
            positions = {} if VERSION_5 else {"cache_position": torch.arange(start, stop)}
            ours, expected = (model(**step, **positions, past_key_values=cache).logits for cache in (static, dynamic))
            assert_as_accurate(ours, expected, expected)
            start = stop


def poison(cache, model) -> None:
    """Fills the slots of a static cache with NaN, through the same interface that allocates them."""
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache.early_initialization(1, config.num_key_value_heads, head_dim, torch.float32, torch.device("cpu"))
    for layer in cache.layers:
        layer.keys.fill_(float("nan"))
        layer.values.fill_(float("nan"))


def test_static_prefill_without_a_mask_is_not_shifted():
    """A prompt into an empty static cache, no padding mask: fewer queries than keys, and the keys behind are empty."""
    from transformers import StaticCache

    model = set_attention(DECODERS["llama"].build(), "mtl4")
    ids = token_ids(2, 7)
    with torch.no_grad():
        expected = model(ids).logits
        cache = StaticCache(config=model.config, max_cache_len=32)
        positions = {} if VERSION_5 else {"cache_position": torch.arange(7)}
        ours = model(ids, past_key_values=cache, **positions).logits
    assert_as_accurate(ours, expected, expected)
