"""torch_mtl4.enabled and enable: F.scaled_dot_product_attention on our kernel, by thread, counted, restored."""

import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_mtl4

TORCH_SDPA = F.scaled_dot_product_attention


class Attention(nn.Module):
    """What timm's and many others' attention modules look like."""

    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, **options):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2).flatten(2))


@pytest.fixture(autouse=True)
def torch_function_is_back():
    yield
    assert F.scaled_dot_product_attention is TORCH_SDPA


@pytest.fixture
def module():
    torch.manual_seed(0)
    return Attention()


@pytest.fixture
def x():
    return torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(1))


def counts(model) -> tuple[int, int]:
    report = torch_mtl4.report(model)
    return report.fused_calls, report.unfused_calls


OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "bool mask": {"attn_mask": torch.ones(7, 7).tril(2).bool()},
    "float mask": {"attn_mask": torch.linspace(-1, 1, 4 * 49).view(1, 4, 7, 7)},
    "scale": {"scale": 0.7},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_values_and_gradients(module, x, options):
    def run():
        module.zero_grad()
        out = module(x, **options)
        out.square().sum().backward()
        return [out.detach(), *(p.grad.clone() for p in module.parameters())]

    expected = run()
    assert counts(module) == (0, 0)
    with torch_mtl4.enabled():
        ours = run()
    torch.testing.assert_close(ours, expected)
    assert counts(module) == (1, 0)


def test_grouped_heads_and_fewer_dimensions():
    q, kv = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
    for arguments, options in (((q, kv, kv), {"enable_gqa": True}), ((q[0], q[0], q[0]), {}), ((q[0, 0],) * 3, {})):
        expected = F.scaled_dot_product_attention(*arguments, **options)
        with torch_mtl4.enabled(strict=True):
            ours = F.scaled_dot_product_attention(*arguments, **options)
        torch.testing.assert_close(ours, expected)


def test_autocast_casts_as_torch_does(module, x):
    mask = torch.linspace(-1, 1, 49).view(7, 7)
    truth = module(x, attn_mask=mask)
    with torch.autocast("cpu", torch.bfloat16):
        expected = module(x, attn_mask=mask)
        with torch_mtl4.enabled(strict=True):
            ours = module(x, attn_mask=mask)
    assert ours.dtype == expected.dtype == torch.bfloat16
    errors = [(t - truth).abs().max() for t in (ours, expected)]
    assert errors[0] <= 2 * errors[1]


@pytest.mark.parametrize("bias_kv", [False, True])
@pytest.mark.parametrize("masks", [False, True])
def test_multihead_attention(bias_kv, masks):
    module = nn.MultiheadAttention(32, 4, batch_first=True, add_bias_kv=bias_kv).train()
    x, memory = torch.randn(2, 6, 32), torch.randn(2, 9, 32)
    options = {"need_weights": False}
    if masks:
        options["key_padding_mask"] = torch.arange(9).expand(2, 9) >= torch.tensor([[9], [5]])
        options["attn_mask"] = torch.ones(6, 9).triu(4).bool()

    def run():
        module.zero_grad()
        out, weights = module(x, memory, memory, **options)
        out.square().sum().backward()
        assert weights is None
        return [out.detach(), *(p.grad.clone() for p in module.parameters())]

    expected = run()
    with torch_mtl4.enabled(strict=True):
        ours = run()
    torch.testing.assert_close(ours, expected)
    assert counts(module) == (1, 0)


def test_multihead_attention_fast_path_is_reported():
    """In evaluation without gradients torch computes in one function of its own, which never calls F.sdpa."""
    module = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    torch_mtl4.patch(module)
    x = torch.randn(2, 6, 32)
    with torch.no_grad():
        module(x, x, x, need_weights=False)
        assert counts(module) == (0, 0)
        assert "fast path" in torch_mtl4.report(module).attention[0].reason
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            module(x, x, x, need_weights=False)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
    assert counts(module) == (1, 0)
    assert torch_mtl4.report(module).attention[0].reason is None


REFUSED = {
    "dropout 0.5": lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5),
    "dtype float64": lambda q: F.scaled_dot_product_attention(q.double(), q.double(), q.double()),
    "head dim 600": lambda q: F.scaled_dot_product_attention(*(torch.randn(1, 1, 2, 600),) * 3),
    "a torch.func transform": lambda q: torch.func.vmap(lambda t: F.scaled_dot_product_attention(t, t, t))(q),
    "Marked in place of a plain tensor": lambda q: F.scaled_dot_product_attention(q, q, q.as_subclass(Marked)),
}


class Marked(torch.Tensor):
    pass


@pytest.mark.parametrize("reason", REFUSED)
def test_what_the_kernel_does_not_take_runs_torch_and_is_counted(reason):
    class Caller(nn.Module):
        def forward(self, q):
            return REFUSED[reason](q)

    module, q = Caller(), torch.randn(1, 2, 5, 8)
    torch.manual_seed(0)
    expected = module(q)
    with torch_mtl4.enabled():
        torch.manual_seed(0)
        assert torch.equal(module(q), expected)
    assert torch_mtl4.report(module).attention[0].calls.unfused == {reason: 1}
    with torch_mtl4.enabled(strict=True), pytest.raises(NotImplementedError, match=f"got {reason} in Caller"):
        module(q)


def test_nesting_and_exceptions(module, x):
    with torch_mtl4.enabled():
        with pytest.raises(KeyError), torch_mtl4.enabled(strict=True):
            raise KeyError
        module(x, dropout_p=0.5)
        with torch_mtl4.enabled():
            module(x)
        module(x)
    assert counts(module) == (2, 1)
    with pytest.raises(KeyboardInterrupt), torch_mtl4.enabled():
        raise KeyboardInterrupt
    module(x)
    assert counts(module) == (2, 1)


def test_strict_holds_in_inner_contexts(module, x):
    with torch_mtl4.enabled(strict=True), torch_mtl4.enabled(), pytest.raises(NotImplementedError, match="dropout"):
        module(x, dropout_p=0.5)


def test_decorator(module, x):
    @torch_mtl4.enabled()
    def run():
        return module(x)

    run()
    run()
    assert counts(module) == (2, 0)


def test_other_threads_keep_torch():
    """Threads inside and outside at the same time; each sees its own state, and the last one out restores."""
    inside, outside = [Attention() for _ in range(3)], [Attention() for _ in range(3)]
    barrier = threading.Barrier(6, timeout=20)
    errors = []

    def work(module, on):
        try:
            x = torch.randn(2, 7, 32)
            expected = module(x)
            barrier.wait()
            for _ in range(20):
                if on:
                    with torch_mtl4.enabled():
                        out = module(x)
                else:
                    out = module(x)
                torch.testing.assert_close(out, expected)
            barrier.wait()
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(m, m in inside)) for m in inside + outside]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [counts(m) for m in inside] == [(20, 0)] * 3
    assert [counts(m) for m in outside] == [(0, 0)] * 3


def test_a_thread_started_inside_keeps_torch(module, x):
    with torch_mtl4.enabled():
        thread = threading.Thread(target=module, args=(x,))
        thread.start()
        thread.join()
    assert counts(module) == (0, 0)


def test_another_library_binding_the_name_meanwhile(module, x):
    """Its function stays, still works, and a later context does not call in circles."""
    expected = module(x)
    try:
        with torch_mtl4.enabled():
            ours = F.scaled_dot_product_attention
            F.scaled_dot_product_attention = theirs = lambda *args, **options: ours(*args, **options)
        assert F.scaled_dot_product_attention is theirs
        torch.testing.assert_close(module(x), expected)
        with torch_mtl4.enabled():
            torch.testing.assert_close(module(x), expected)
            module(x, dropout_p=0.5)
        assert F.scaled_dot_product_attention is theirs
    finally:
        F.scaled_dot_product_attention = TORCH_SDPA


def test_enable_and_disable(module, x):
    expected = module(x)
    torch_mtl4.enable()
    try:
        torch_mtl4.enable()
        thread = threading.Thread(target=module, args=(x,))
        thread.start()
        thread.join()
        torch.testing.assert_close(module(x), expected)
    finally:
        torch_mtl4.disable()
    module(x)
    torch_mtl4.disable()
    assert counts(module) == (2, 0)


def test_enable_serves_the_sdpa_name_of_transformers():
    tiny = pytest.importorskip("tiny_models")
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    before = AttentionInterface()["sdpa"], AttentionMaskInterface()["sdpa"]
    model = tiny.set_attention(tiny.DECODERS["llama"].build(), "sdpa")
    inputs = {"input_ids": tiny.token_ids(2, 8), "attention_mask": tiny.left_padding(2, 8, 2)}
    with torch.no_grad():
        expected = model(**inputs).logits
        torch_mtl4.enable()
        try:
            ours = model(**inputs).logits
            report = torch_mtl4.report(model)
        finally:
            torch_mtl4.disable()
        model(**inputs)
    tiny.assert_as_accurate(ours, expected, expected)
    assert report.fused_calls == 2 and not report.bypassing
    assert torch_mtl4.report(model).fused_calls == 2
    assert (AttentionInterface()["sdpa"], AttentionMaskInterface()["sdpa"]) == before


def test_continuous_batching():
    tiny = pytest.importorskip("tiny_models")
    if not tiny.VERSION_5:
        pytest.skip("the names that continuous batching of transformers 4 accepts do not include sdpa")
    from transformers import ContinuousBatchingConfig, GenerationConfig

    # By default the cache takes most of the machine's memory.
    small = ContinuousBatchingConfig(page_size=16, num_blocks=8, max_batch_tokens=32)
    model = tiny.set_attention(tiny.DECODERS["llama"].build(), "sdpa")
    prompts = [tiny.token_ids(1, n, seed=n)[0].tolist() for n in (5, 9, 3)]
    config = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1, pad_token_id=0)
    expected = [model.generate(torch.tensor([p]), generation_config=config)[0, len(p) :].tolist() for p in prompts]
    torch_mtl4.enable()
    try:
        outputs = model.generate_batch(inputs=prompts, generation_config=config, continuous_batching_config=small)
    finally:
        torch_mtl4.disable()
    assert sorted(o.generated_tokens for o in outputs.values()) == sorted(expected)
    assert torch_mtl4.report(model).fused_calls > 0
