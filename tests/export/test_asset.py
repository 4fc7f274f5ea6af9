"""The file: names, dates, hashes, what may be overwritten."""

import hashlib
import json

import pytest

pytest.importorskip("coreai_torch", reason="Core AI is not installed: pip install torch_mtl4[coreai]")

from tests.export.apple_kernels import BODY, set_text
from torch_mtl4.export.coreai import asset


def test_kernels_are_named_by_their_text(rows):
    first, second = asset.kernels_of(rows.path)
    assert first == second
    base = first.name.rpartition("_")[0]
    assert base == rows.model.kernel.name
    assert first.name == f"{base}_{asset.digest_of(first.text.replace(first.name, base))[:12]}"
    assert f"void {first.name}(" in first.text and BODY in first.text
    assert list(rows.records) == [first.name]
    assert first.operands[:2] == (("f32", (8, 24)), ("f32", (24,)))
    assert first.results == (("f32", (8, 24)), ("f32", (8,)))


def test_names_differ_with_the_text_and_not_with_the_conversion(rows, any_rows):
    assert rows.name == any_rows.name
    program = asset.load(rows.path)
    with program._module:
        for _, op in asset.calls_in(program):
            set_text(op, "max(most", "min(most")
    renamed = asset.rename_kernels(program)
    assert list(renamed) == [rows.name] and renamed[rows.name] != rows.name
    assert asset.rename_kernels(asset.load(rows.path), keep=[rows.name]) == {}


def test_sizes_that_depend_on_the_input_are_none(any_rows):
    kernel, _ = asset.kernels_of(any_rows.path)
    assert kernel.operands[0] == ("f32", (None, 24))
    assert kernel.results == (("f32", (None, 24)), ("f32", (None,)))


def test_metadata_has_the_hashes_and_a_fixed_date(rows, tmp_path, monkeypatch):
    metadata = json.loads((rows.path / "metadata.json").read_text())
    assert metadata["creationDate"] == "19700101T000000Z"
    digest = hashlib.sha256(rows.records[rows.name].text.encode()).hexdigest()
    assert metadata["creatorDefinedMetadata"]["torch_mtl4"]["kernels"] == [{"name": rows.name, "sha256": digest}]
    program = (rows.path / "main.mlirb").read_bytes()
    assert (rows.path / "main.hash").read_bytes() == hashlib.sha256(program).digest()

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    asset.save(asset.load(rows.path), tmp_path / "b.aimodel", {}, "27")
    assert json.loads((tmp_path / "b.aimodel/metadata.json").read_text())["creationDate"] == "19700102T000000Z"
    assert (tmp_path / "b.aimodel/main.mlirb").read_bytes() == program


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected path with the suffix .aimodel, got 'a.bundle'"):
        asset.check_path(tmp_path / "a.bundle", overwrite=True)


def test_nothing_is_overwritten_unless_asked_and_only_assets(rows, tmp_path):
    path = rows.path
    with pytest.raises(FileExistsError, match=r"overwrite=True replaces it"):
        asset.check_path(path, overwrite=False)
    assert asset.check_path(path, overwrite=True) == path
    folder = tmp_path / "mine.aimodel"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="to be an asset"):
        asset.check_path(folder, overwrite=True)


def test_a_failed_save_leaves_what_was_there(rows, tmp_path):
    path = rows.copied_to(tmp_path).path
    before = (path / "main.mlirb").read_bytes()
    with pytest.raises(ValueError):
        asset.save(asset.load(path), path, {}, minimum_os="26")
    assert (path / "main.mlirb").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["rows.aimodel"]
