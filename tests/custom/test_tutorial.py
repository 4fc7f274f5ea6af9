"""docs/custom_kernel.md: its Python runs as written and prints what it shows; its table is that of the linter."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.documents import blocks_of, run
from torch_mtl4.custom import kernels
from torch_mtl4.custom.lint import RULES

TEXT = (Path(__file__).parents[2] / "docs/custom_kernel.md").read_text()
BLOCKS = blocks_of("docs/custom_kernel.md")


@pytest.fixture
def free_names():
    """The tutorial is written for a process of its own."""
    before = set(kernels())
    yield
    for name in set(kernels()) - before:
        kernels()[name].remove()


def rounded(text):
    """Without the last digits of long numbers, which differ from machine to machine."""
    return re.sub(r"\d+\.\d{7,}", lambda match: f"{float(match[0]):.6g}", text)


def test_the_tutorial_runs_and_prints_what_it_shows(free_names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCKS
    if importlib.util.find_spec("coreai_torch") is None:
        blocks = BLOCKS[: next(i for i, (_, block) in enumerate(BLOCKS) if "export import coreai" in block)]
    printed, shown = run(blocks, "custom_kernel.md")
    assert len(shown) >= 9
    for at, block in shown:
        assert rounded(printed[at]) == rounded(block)
    quiet = set(range(len(printed))) - {at for at, _ in shown}
    assert all(printed[at] == "" for at in quiet)


def test_the_bug_of_the_tutorial_is_found_and_its_repair_is_clean():
    texts = [block for kind, block in BLOCKS if kind == "text"]
    assert "race: " in texts[1] and "clean" not in texts[1]
    assert texts[2].count("clean") == 2


def test_the_table_is_that_of_the_linter():
    rows = re.findall(r"^\| `([a-z-]+)` \| (error|warning) \| (.*) \|$", TEXT, re.M)
    assert [(rule, (severity, what)) for rule, severity, what in rows] == list(RULES.items())
