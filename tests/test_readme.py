"""README's Python runs as it stands, block after block, on a tiny model under the name that README uses."""

import re
from pathlib import Path

import pytest
import torch

import torch_mtl4

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
MODEL = '"google/gemma-3-270m"'


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def run(block, scope, decoder):
    exec(compile(block.replace(MODEL, repr(decoder)), "README.md", "exec"), scope)


def test_python_blocks_run(tiny_decoder, tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    code = blocks("python")
    assert len(code) >= 6 and any(MODEL in block for block in code)
    scope = {}
    for block in code:
        run(block, scope, tiny_decoder)
    assert "attention: 2 of 2 modules on our kernel" in capsys.readouterr().out
    assert isinstance(scope["torch_mtl4"].nn.MXFP8Linear, type)


def test_export_to_core_ai_runs(tiny_decoder, tmp_path, monkeypatch, capsys):
    pytest.importorskip("coreai_torch")
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("python coreai")
    scope = {"torch": torch, "torch_mtl4": torch_mtl4, "AutoModelForCausalLM": transformers.AutoModelForCausalLM}
    run(block, scope, tiny_decoder)
    printed = capsys.readouterr().out
    assert "attention: 2 of 2 modules on a kernel" in printed and "off the model by" in printed


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z-]+)`?", README.read_text())) - {"you"} <= targets


def test_commands_parse():
    from torch_mtl4.__main__ import main

    commands = re.findall(r"^python -m torch_mtl4 (.*)$", README.read_text(), re.MULTILINE)
    assert commands
    for command in commands:
        with pytest.raises(SystemExit) as exit:
            main([*command.split(), "--help"])
        assert exit.value.code == 0


def test_public_names_in_the_readme_exist():
    for name in set(re.findall(r"torch_mtl4\.([a-zA-Z_0-9]+)\(", README.read_text())):
        assert hasattr(torch_mtl4, name), name
