"""A language model whose key-value cache is a state of the asset: tokens are those of transformers' generate."""

import pytest
import torch

from torch_mtl4 import testing

pytest.importorskip("coreai_torch", reason="Core AI is not installed: pip install torch_mtl4[coreai]")
transformers = pytest.importorskip("transformers")

from tests.export.whole_models import exported  # noqa: E402
from tests.integrations.tiny_models import DECODERS, token_ids  # noqa: E402
from torch_mtl4.export.coreai import StaticCacheLM  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

PROMPT = token_ids(1, 6)


def decoder(family="llama", **options):
    return DECODERS[family].build(attn_implementation="mtl4", **options)


@torch.no_grad()
def greedy(step, prompt, count):
    """Tokens that follow the prompt, each fed back alone."""
    tokens = [step(prompt)[:, -1].argmax(-1)]
    while len(tokens) < count:
        tokens.append(step(tokens[-1][:, None])[:, -1].argmax(-1))
    return torch.stack(tokens, 1)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_tokens_of_the_module_are_those_of_generate(family):
    model = decoder(family)
    cached = StaticCacheLM(model, max_length=16).eval()
    want = model.generate(PROMPT, max_new_tokens=8, do_sample=False)[:, 6:]
    for _ in range(2):
        assert greedy(cached, PROMPT, 8).tolist() == want.tolist()
        assert cached.length.tolist() == [13]
        cached.reset()
    assert not any(buffer.any() for buffer in cached.buffers(recurse=False))


def test_tokens_of_the_asset_are_those_of_generate(monkeypatch, tmp_path):
    model = decoder()
    want = model.generate(PROMPT, max_new_tokens=4, do_sample=False)[:, 6:]
    cached = StaticCacheLM(model, max_length=16).eval()
    asset = exported(
        monkeypatch, cached, {"input_ids": PROMPT}, tmp_path / "llama.aimodel", entrypoint="prefill",
        more_entrypoints={"decode": {"input_ids": PROMPT[:, :1]}}, output_names=["logits"],
    )  # fmt: skip
    states = ["key_0", "value_0", "key_1", "value_1", "length"]
    assert [asset.report.functions[name]["states"] for name in ("prefill", "decode")] == [states, states]
    assert asset.report.kernel_calls == 4
    held = {name: buffer.clone() for name, buffer in cached.named_buffers(recurse=False)}

    def step(tokens):
        nonlocal held
        run = asset.run({"input_ids": tokens}, held, "prefill" if tokens.shape[1] > 1 else "decode")
        held = run.states
        return run.outputs["logits"]

    assert greedy(step, PROMPT, 4).tolist() == want.tolist()
    # The states are those of the module after the same tokens.
    greedy(cached, PROMPT, 4)
    for name, buffer in cached.named_buffers(recurse=False):
        testing.assert_close(held[name], buffer, 1e-4, name)
    assert held["length"].tolist() == [9]


def test_what_has_no_static_cache():
    with pytest.raises(NotImplementedError, match="expected layers that attend to all tokens, got StaticSliding"):
        StaticCacheLM(decoder("mistral"), 16)
    with pytest.raises(TypeError, match="a causal language model of transformers, got Linear"):
        StaticCacheLM(torch.nn.Linear(2, 2), 16)
    with pytest.raises(ValueError, match="expected max_length an int of at least 1, got 0"):
        StaticCacheLM(decoder(), 0)
    with pytest.raises(ValueError, match=r"expected batch_size an int of at least 1, got 1\.5"):
        StaticCacheLM(decoder(), 16, 1.5)
