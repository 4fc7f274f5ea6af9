"""torch_mtl4.patch, unpatch and report: what they change, what they leave, and that all of it comes back."""

import copy
import io
import threading
from dataclasses import replace

import pytest
import tiny_models as tiny
import torch
from test_enabled import Attention
from tiny_models import VERSION_5, assert_as_accurate, first_output
from torch import nn

import torch_mtl4

FAMILIES = {
    **tiny.DECODERS, **tiny.ENCODERS, **tiny.ENCODER_DECODERS, **tiny.BYPASSING, **tiny.MIXED, "sam3": tiny.SAM3,
}  # fmt: skip


def build(name):
    model = replace(FAMILIES[name], skip=None).build()
    # The default of transformers 4, sdpa, drops what these families add to the logits.
    return tiny.set_attention(model, "eager") if name in ("gemma2", "gpt_oss") else model


def names(model) -> list:
    """The attention name of every config that a module of the model holds."""
    configs = (getattr(module, "config", None) for module in model.modules())
    return [getattr(config, "_attn_implementation", None) for config in configs]


@pytest.mark.parametrize("name", FAMILIES)
def test_round_trip(name):
    """Patched: same answer, calls counted where there is something to call. Unpatched: bit for bit what it was."""
    model, inputs = build(name), FAMILIES[name].inputs()
    before = names(model), set(vars(model)), [set(vars(m)) for m in model.modules()]
    with torch.no_grad():
        expected = first_output(model, inputs)
        assert torch_mtl4.patch(model) is model
        ours = first_output(model, inputs)
        patched = torch_mtl4.report(model, reset=True)
        assert torch_mtl4.unpatch(model) is model
        again = first_output(model, inputs)
    seen = torch.ones(ours.shape[:2], dtype=torch.bool)
    if name == "bert":
        seen = inputs["attention_mask"].bool()
    assert_as_accurate(ours[seen], expected[seen], expected[seen])
    assert torch.equal(again, expected)
    assert (names(model), set(vars(model)), [set(vars(m)) for m in model.modules()]) == before
    assert torch_mtl4.report(model).fused_calls == 0
    assert all(m.bypasses and m.reason for m in torch_mtl4.report(model).attention)

    assert patched.unfused_calls == 0
    if name in EXPECTED_BYPASS:
        assert {m.module for m in patched.bypassing} == EXPECTED_BYPASS[name]
        assert all("computes its attention itself" in m.reason for m in patched.bypassing)
    else:
        assert not patched.bypassing and patched.fused_calls > 0


EXPECTED_BYPASS = {
    "bloom": {"BloomAttention"},
    "deberta": {"DisentangledSelfAttention"},
    "gpt_neo": {"GPTNeoSelfAttention"},
    "git": {"GitSelfAttention"},
}
if not VERSION_5:
    EXPECTED_BYPASS |= {"swin": {"SwinSelfAttention"}, "t5": {"T5Attention"}}


@pytest.mark.parametrize("name", ["sam", "git"])
def test_models_with_both_sorts_of_attention(name):
    """They raise KeyError when loaded with the name; patched, the part that can runs on our kernel."""
    model = build(name)
    torch_mtl4.patch(model)
    with torch.no_grad():
        model(**FAMILIES[name].inputs())
    report = torch_mtl4.report(model)
    assert report.fused_calls > 0
    parts = {m.name.split(".")[0] if name == "sam" else m.module for m in report.attention if m.calls.fused}
    assert parts == ({"vision_encoder", "mask_decoder"} if name == "sam" else {"GitVisionAttention"})


def test_patching_twice_is_patching_once():
    model = build("llama")
    torch_mtl4.patch(torch_mtl4.patch(model))
    torch_mtl4.unpatch(model)
    assert set(names(model)) - {None} == {"sdpa"}
    torch_mtl4.unpatch(model)


def test_a_model_loaded_with_the_name_stays_so():
    model = tiny.set_attention(build("llama"), "mtl4")
    torch_mtl4.unpatch(torch_mtl4.patch(model))
    assert set(names(model)) - {None} == {"mtl4"}


def test_sub_configs_get_their_own_names_back():
    model = build("clip")
    model.config.text_config._attn_implementation_internal = "eager"
    before = names(model)
    assert {"eager", "sdpa"} <= set(before)
    torch_mtl4.patch(model)
    assert set(names(model)) - {None} == {"mtl4"}
    torch_mtl4.unpatch(model)
    assert names(model) == before


def test_forwards_that_others_replaced_come_back():
    model = nn.Sequential(Attention())
    theirs = model[0].forward
    model[0].forward = theirs
    torch_mtl4.patch(model)
    model(torch.randn(1, 4, 32))
    torch_mtl4.unpatch(model)
    assert model[0].__dict__["forward"] is theirs
    assert torch_mtl4.report(model).fused_calls == 1


def test_a_deep_copy_is_patched_on_its_own():
    model, x = nn.Sequential(Attention()), torch.randn(1, 4, 32)
    clone = copy.deepcopy(torch_mtl4.patch(model))
    torch_mtl4.unpatch(model)
    with torch.no_grad():
        clone[0].out.weight.zero_()
        assert torch.equal(clone(x), clone[0].out.bias.expand(1, 4, 32))
    assert torch_mtl4.report(clone).fused_calls == 1 and torch_mtl4.report(model).fused_calls == 0
    torch_mtl4.unpatch(clone)
    assert "forward" not in vars(clone[0])


def test_a_patched_model_can_be_saved_and_loaded():
    model = torch_mtl4.patch(build("llama"))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded = torch_mtl4.unpatch(torch.load(buffer, weights_only=False))
    assert set(names(loaded)) - {None} == {"sdpa"}


@pytest.mark.parametrize("keep", [False, True])
def test_weights(keep):
    model, inputs = build("llama"), tiny.DECODERS["llama"].inputs()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        expected = first_output(model, inputs)
        torch_mtl4.patch(model, weights="mxfp8", keep_originals=keep)
        ours = first_output(model, inputs)
        report = torch_mtl4.report(model)
        assert [m.ready for m in report.weights if "proj" in m.name] == [True] * 14
        assert all(m.calls.fused == 1 for m in report.weights if m.ready)
        assert 0 < (ours - expected).abs().max() < 0.2 * expected.abs().max()
        torch_mtl4.unpatch(model)
        again = first_output(model, inputs)
    assert not any(isinstance(m, torch_mtl4.nn.MXFP8Linear) for m in model.modules())
    assert torch.equal(again, expected) == keep
    assert state.keys() == model.state_dict().keys()
    same = [torch.equal(value, model.state_dict()[name]) for name, value in state.items()]
    assert all(same) == keep and any(same)


def test_weights_alone_and_added_later():
    model = torch_mtl4.patch(build("llama"), attention=False, weights="mxfp8", skip=["mlp"])
    assert set(names(model)) - {None} == {"sdpa"}
    weights = torch_mtl4.report(model).weights
    assert {m.reason for m in weights if "mlp" in m.name} == {"not quantized"}
    torch_mtl4.patch(model)
    assert set(names(model)) - {None} == {"mtl4"}
    torch_mtl4.unpatch(model)
    assert set(names(model)) - {None} == {"sdpa"}
    assert not any(m.ready for m in torch_mtl4.report(model).modules)


def test_unpatch_says_which_layer_it_misses():
    model = torch_mtl4.patch(build("llama"), weights="mxfp8")
    model.model.layers[0].mlp.up_proj = nn.Identity()
    with pytest.raises(RuntimeError, match=r"the quantized layer model.layers.0.mlp.up_proj where patch left it"):
        torch_mtl4.unpatch(model)


def test_strict():
    with pytest.raises(NotImplementedError, match=r"got 2 that compute it themselves: transformer.h.0.self_attention"):
        torch_mtl4.patch(build("bloom"), strict=True)
    model = tiny.DECODERS["llama"].build(attention_dropout=0.1)
    torch_mtl4.patch(model, strict=True)
    inputs = tiny.DECODERS["llama"].inputs()
    model(**inputs)
    with pytest.raises(NotImplementedError, match=r"\(strict mode\), got dropout 0.1 in LlamaAttention"):
        model.train()(**inputs)
    torch_mtl4.unpatch(model)
    torch_mtl4.patch(model)(**inputs)
    assert torch_mtl4.report(model).unfused_calls == 2


def test_threads_patch_and_run_their_own_models():
    models = [build("llama") for _ in range(4)]
    inputs = tiny.DECODERS["llama"].inputs()
    errors = []

    def work(model):
        try:
            with torch.no_grad():
                expected = first_output(model, inputs)
                for _ in range(3):
                    torch_mtl4.patch(model)
                    ours = first_output(model, inputs)
                    assert_as_accurate(ours, expected, expected)
                    torch_mtl4.unpatch(model)
                    assert torch.equal(first_output(model, inputs), expected)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(m,)) for m in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [torch_mtl4.report(m).fused_calls for m in models] == [6] * 4


@pytest.mark.parametrize("function", [torch_mtl4.patch, torch_mtl4.unpatch, torch_mtl4.report])
def test_not_a_module(function):
    with pytest.raises(TypeError, match=f"{function.__name__}: expected model torch.nn.Module, got dict"):
        function({})


def test_unknown_weights():
    with pytest.raises(ValueError, match="patch: expected weights None or 'mxfp8', got 'int3'"):
        torch_mtl4.patch(nn.Linear(2, 2), weights="int3")


def test_report_reads_well():
    model = torch_mtl4.patch(build("llama"), weights="mxfp8")
    model(**tiny.DECODERS["llama"].inputs())
    text = str(torch_mtl4.report(model))
    assert "attention: 2 of 2 modules on our kernel, 2 calls took it, 0 did not" in text
    assert "model.layers.*.self_attn [LlamaAttention x 2]: kernel (2 calls)" in text
    assert "weights: 14 of 15 layers in MXFP8" in text
    bloom = str(torch_mtl4.report(build("bloom")))
    assert "[BloomAttention x 2]: bypasses; computes its attention itself" in bloom


def test_counts_do_not_keep_a_model_alive():
    import gc
    import weakref

    model = torch_mtl4.patch(nn.Sequential(Attention()))
    model(torch.randn(1, 4, 32))
    alive = weakref.ref(model[0])
    torch_mtl4.unpatch(model)
    del model
    gc.collect()
    assert alive() is None
