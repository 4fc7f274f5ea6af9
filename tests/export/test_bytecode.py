"""The table of strings in MLIR bytecode; that whole assets are equal is test_export's part."""

import pytest

from torch_mtl4.export.coreai.bytecode import _number, _number_at, number_resources


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16383, 16384, 2**40, 2**56 - 1, 2**56, 2**64 - 1])
def test_numbers_of_any_length(value):
    data = _number(value)
    assert _number_at(data + b"\xff" * 9, 0) == (value, len(data))


def _file(strings: list[bytes]) -> bytes:
    lengths = b"".join(_number(len(s) + 1) for s in reversed(strings))
    table = _number(len(strings)) + lengths + b"".join(s + b"\0" for s in strings)
    # Version, producer, a section that is aligned, the strings, and one behind them.
    head = b"ML\xefR" + _number(6) + b"me\0" + b"\x84" + _number(3) + _number(4)
    head += b"\xcb" * (-len(head) % 4) + b"abc"
    return head + b"\0" + _number(len(table)) + table + b"\x08" + _number(2) + b"zz"


def test_only_names_of_weights_are_renamed(tmp_path):
    file = tmp_path / "main.mlirb"
    file.write_bytes(_file([b"x", b"resource_15720134418884783668", b"resource_7", b"resource_957201344188847"]))
    assert number_resources(file) == 2
    assert file.read_bytes() == _file([b"x", b"mtl4_resource_000000", b"resource_7", b"mtl4_resource_000001"])
    assert number_resources(file) == 0


@pytest.mark.parametrize("content", [b"", b"MLIR text", b"ML\xefR" + _number(6) + b"me\0"])
def test_other_files_are_refused_and_stay(tmp_path, content):
    file = tmp_path / "main.mlirb"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="expected"):
        number_resources(file)
    assert file.read_bytes() == content
