"""The layout and the laws of the project, as far as a machine can read them."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
FILES = [ROOT / name for name in TRACKED if name and (ROOT / name).is_file()] or [
    path for folder in ("torch_mtl4", "csrc", "metal", "tests") for path in (ROOT / folder).rglob("*") if path.is_file()
]
CODE = [path for path in FILES if path.suffix in (".py", ".cpp", ".h", ".mm", ".metal")]
PYTHON = [path for path in CODE if path.suffix == ".py"]
LIMIT = 500


def name_of(path):
    return str(path.relative_to(ROOT))


def within(path, *folders):
    return any(path.is_relative_to(ROOT / folder) for folder in folders)


def test_files_are_short():
    long = {name_of(path): length for path in CODE if (length := len(path.read_text().splitlines())) > LIMIT}
    assert not long, f"over {LIMIT} lines: {long}"


def test_only_one_file_writes_torch_ops():
    # tests may: what a caller of the raw ops can do is one of the things they prove.
    ours = re.compile(r"torch\.ops\.torch_mtl4\b")
    users = [name_of(p) for p in PYTHON if ours.search(p.read_text()) and not within(p, "tests")]
    assert users == ["torch_mtl4/_ops.py"]


LAYERS = {"csrc/ops", "csrc/cpu", "csrc/cpu/kernels", "torch_mtl4/ops", "torch_mtl4/reference", "tests/ops"}
LAYERS |= {"csrc/plan", "tests/plan", "tests/metal"}


@pytest.mark.parametrize("op", ["flash_attention", "mxfp8"])
def test_an_op_has_one_name_in_every_layer(op):
    assert {name_of(path.parent) for path in FILES if op in path.name} >= LAYERS


def test_every_op_of_the_schema_is_named_in_python():
    schema = (ROOT / "csrc/ops/schema.cpp").read_text()
    declared = set(re.findall(r'"(\w+)\(', schema))
    named = set(re.findall(r"torch\.ops\.torch_mtl4\.(\w+)\.default", (ROOT / "torch_mtl4/_ops.py").read_text()))
    assert declared == named and declared


def test_kernels_stay_ascii():
    for path in FILES:
        if within(path, "metal", "csrc"):
            assert path.read_text().isascii(), name_of(path)


def test_tolerances_live_in_testing():
    # Only where the policy serves: the numeric tests of ops. A number as atol or rtol is somebody's private tolerance.
    literal = re.compile(r"\b(atol|rtol|tolerance)\s*=\s*[\d.]+")
    found = [
        name_of(path)
        for path in PYTHON
        if within(path, "tests/ops", "tests/formats") and literal.search(path.read_text())
    ]
    assert not found


def test_lower_layers_do_not_import_upper_ones():
    forbidden = {
        "torch_mtl4/formats": r"torch_mtl4\.(ops|reference|nn|integrations|testing|_ops)\b",
        "torch_mtl4/reference": r"torch_mtl4\.(ops|nn|integrations|testing|_ops)\b",
        "torch_mtl4/ops": r"torch_mtl4\.(nn|integrations|testing)\b",
        "torch_mtl4/nn": r"torch_mtl4\.(_ops|testing)\b",
        "torch_mtl4/integrations": r"torch_mtl4\.(_ops|testing)\b",
    }
    for folder, words in forbidden.items():
        for path in PYTHON:
            if within(path, folder):
                lines = [line for line in path.read_text().splitlines() if re.match(r"\s*(from|import) ", line)]
                bad = [line for line in lines if re.search(words, line)]
                assert not bad, f"{name_of(path)}: {bad}"


def test_the_plan_knows_no_torch_and_no_metal():
    for path in FILES:
        if within(path, "csrc/plan"):
            others = re.findall(r"#include <(?:torch/(?!headeronly)|ATen|c10|Metal|Foundation).*", path.read_text())
            assert not others, f"{name_of(path)}: {others}"


def test_no_banners_and_no_commented_out_code():
    banner = re.compile(r"^\s*(#|//)\s*[-=*#/]{4,}\s*$", re.MULTILINE)
    dead = re.compile(r"^\s*#\s*(def |class |return |import |from \w+ import |if .*:$|for .*:$)", re.MULTILINE)
    for path in CODE:
        if path.name == "test_architecture.py":
            continue
        text = path.read_text()
        assert not banner.search(text), name_of(path)
        if path.suffix == ".py":
            assert not dead.search(text), name_of(path)


def test_no_paths_of_this_machine():
    private = re.compile(r"(?<![\w.])/(work|root|home/\w+|Users/\w+)/|/tmp/(v|venv|ops|bash)")
    for path in FILES:
        if path.name != "test_architecture.py" and path.suffix in (".py", ".cpp", ".h", ".md", ".toml", ".txt", ".yml"):
            assert not private.search(path.read_text()), name_of(path)
