import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("rich")
from torch_mtl4.demo import weights


def test_missing_packages_are_named_with_the_command_that_installs_them():
    with pytest.raises(
        weights.DemoError, match=r"needs no_such_module_1, no_such_module_2, which are not installed"
    ) as e:
        weights.require("torch", "no_such_module_1", "no_such_module_2")
    assert "pip install 'torch_mtl4[demo]'" in str(e.value)


@pytest.mark.parametrize(
    ("model_type", "architectures", "kind"),
    [
        ("llama", ["LlamaForCausalLM"], "decoder"),
        ("gpt2", ["GPT2LMHeadModel"], "decoder"),
        ("gpt2", None, "decoder"),
        ("bert", ["BertModel"], "encoder"),
        ("bert", None, "encoder"),
        ("modernbert", ["ModernBertForMaskedLM"], "encoder"),
    ],
)
def test_kind_of(model_type, architectures, kind):
    config = SimpleNamespace(model_type=model_type, architectures=architectures, is_encoder_decoder=False)
    assert weights.kind_of(config) == kind


def test_encoder_decoders_are_refused():
    config = SimpleNamespace(model_type="t5", architectures=["T5Model"], is_encoder_decoder=True)
    with pytest.raises(weights.DemoError, match="t5 is an encoder-decoder"):
        weights.kind_of(config)


def test_a_path_without_a_model_is_told(tmp_path):
    with pytest.raises(weights.DemoError, match="no model could be read from"):
        weights.users_model(str(tmp_path))


def test_the_cache_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_MTL4_CACHE", str(tmp_path))
    assert weights.cache_dir() == tmp_path
    monkeypatch.delenv("TORCH_MTL4_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert weights.cache_dir() == tmp_path / "torch_mtl4"


def test_a_packaged_model_that_fails_to_convert_is_told(monkeypatch, tmp_path):
    pytest.importorskip(weights.DECODER_PACKAGE)
    target = tmp_path / "a file where the folder should be"
    target.write_text("")
    monkeypatch.setenv("TORCH_MTL4_CACHE", str(target))
    with pytest.raises(weights.DemoError, match=r"converting the weights \(gemma\) failed"):
        weights.packaged_decoder()


def test_prepare_converts_what_is_missing_and_measures_nothing(monkeypatch, tmp_path, capsys):
    pytest.importorskip("rich")
    pytest.importorskip(weights.DECODER_PACKAGE)
    pytest.importorskip(weights.ENCODER_PACKAGE)
    from torch_mtl4.__main__ import main
    from torch_mtl4.demo import cli

    monkeypatch.setenv("TORCH_MTL4_CACHE", str(tmp_path))
    monkeypatch.setattr(cli, "_measure", lambda arguments: pytest.fail("nothing is to be measured"))
    converted = []

    def convert(kind, source, target):
        converted.append(kind)
        for made in (target, source) if kind == "gemma" else (target,):
            made.mkdir()

    monkeypatch.setattr(weights, "_convert", convert)
    for _ in range(2):  # the second time all is there
        assert main(["demo", "--prepare"]) == 0
    assert converted == ["gemma", "encoder"]
    assert capsys.readouterr().out == "Gemma 3 270M: ready\nall-MiniLM-L6-v2: ready\n" * 2
