"""The texts that a Mac compiles: flattened, ASCII, with the lines of the files they come from."""

import pytest

from torch_mtl4 import _metal_sources
from torch_mtl4.msl.check import check


@pytest.mark.parametrize("name", _metal_sources.names())
def test_a_flattened_source_is_complete_and_its_own(name):
    text = _metal_sources.flattened(name)
    assert text.isascii() and '#include "' not in text and "#pragma once" not in text
    assert text.startswith(f'#line 1 "{name}/{name}.metal"')


def test_a_file_that_is_included_twice_comes_once(tmp_path, monkeypatch):
    for path, text in {
        "op/op.metal": '#include "op/a.h"\n#include "op/b.h"\nint c;\n',
        "op/a.h": '#pragma once\n#include "op/b.h"\nint a;\n',
        "op/b.h": "#pragma once\nint b;\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(_metal_sources, "folder", lambda: tmp_path)
    lines = _metal_sources.flattened("op").splitlines()
    assert [line for line in lines if line.startswith("int")] == ["int b;", "int a;", "int c;"]
    assert lines[lines.index("int c;") - 1 : lines.index("int c;")] == [""]
    assert _line_of(lines, "int a;") == ("op/a.h", 3) and _line_of(lines, "int c;") == ("op/op.metal", 3)


def _line_of(lines, wanted):
    """(file, line) that a compiler would report."""
    file, number = None, 0
    for line in lines:
        if line.startswith("#line"):
            _, number, file = line.split()
            number = int(number) - 1
            continue
        number += 1
        if line == wanted:
            return file.strip('"'), number
    raise AssertionError(wanted)


@pytest.mark.parametrize(
    ("name", "message"), [("nothing", "expected one of"), ("broken", "to be a file"), ("odd", "ASCII")]
)
def test_bad_sources_are_named(tmp_path, monkeypatch, name, message):
    for op, text in {"broken": '#include "op/none.h"\n', "odd": "// \u00e9\n"}.items():
        (tmp_path / op).mkdir()
        (tmp_path / op / f"{op}.metal").write_text(text)
    monkeypatch.setattr(_metal_sources, "folder", lambda: tmp_path)
    with pytest.raises(ValueError, match=message):
        _metal_sources.flattened(name)


NEEDS_TENSORS = {"self_check"}  # the others have kernels for every system
TIERS = ("macos14", "macos26.2", "macos27")


@pytest.mark.parametrize(
    ("name", "tier"),
    [(n, t) for n in _metal_sources.names() for t in TIERS if n not in NEEDS_TENSORS or t != "macos14"],
)
def test_apples_compiler_would_find_nothing_that_we_know_of(name, tier):
    result = check(_metal_sources.flattened(name), name=f"{name}.metal", tier=tier)
    assert result.kernels and not result.findings and not result.notes, (result.findings, result.notes)
