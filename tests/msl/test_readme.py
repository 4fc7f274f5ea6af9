"""The README of the runner: its kernel, its commands with their output, and its Python run as written."""

import re
import shlex

import pytest

from torch_mtl4.msl import toolchain

from .conftest import python

TEXT = (toolchain.HERE / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```", TEXT, re.M | re.S)
BUGGY = "    if (lane == 0) partial[simdgroup] = sum;\n"
BARRIER = "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
COMMANDS = [
    (label, block)
    for kind, label, block in BLOCKS
    if kind == "console" and block.startswith("$ python -m torch_mtl4.msl ")
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the kernel of the text; `fix` adds the barrier that it misses."""
    ((name, source),) = [(label, block) for kind, label, block in BLOCKS if kind == "metal"]
    assert BUGGY in source
    (tmp_path / name).write_text(source)
    monkeypatch.chdir(tmp_path)

    def fix():
        (tmp_path / name).write_text(source.replace(BUGGY, BUGGY + BARRIER))

    return fix


def words(text):
    return " ".join(text.split())


def test_there_is_something_to_run():
    assert len(COMMANDS) == 4
    assert sum(kind == "python" for kind, _, _ in BLOCKS) == 3


@pytest.mark.parametrize(("label", "block"), COMMANDS, ids=lambda value: words(value)[:40])
def test_command_prints_what_the_text_shows(folder, label, block):
    if label == "fixed":
        folder()
    command, *shown = block.splitlines()
    result = python(*shlex.split(command)[2:])
    assert result.returncode == (1 if "findings" in block else 0), result.stderr
    printed = words(result.stdout)
    for line in shown:
        assert words(line) in printed


def test_python(folder):
    folder()
    names = {}
    for kind, _, block in BLOCKS:
        if kind == "python":
            exec(block, names)
    for layout in ("m5", "scrambled"):
        names["test_row_sum"](1, layout)


def test_every_kind_that_the_runtime_reports_is_listed():
    reported = set()
    for path in [*toolchain.RUNTIME.glob("*.cpp"), *toolchain.INCLUDE.glob("msl/*.h")]:
        reported |= set(re.findall(r'\breport\("([a-z-]+)"', path.read_text()))
    assert {"race", "out-of-bounds", "uninitialised-read", "divergent-barrier"} <= reported
    assert not {kind for kind in reported if f"`{kind}`" not in TEXT}
