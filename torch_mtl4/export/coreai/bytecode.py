"""Names of weights in MLIR bytecode that are the same in every process.

Core AI's compiler names each large constant by a hash that is seeded with an address of the process. The name stands
once, in the file's table of strings; here it becomes a number that counts the constants.

Source: the format's description in LLVM, mlir/docs/BytecodeFormat.md.
"""

import re
from pathlib import Path
from typing import BinaryIO

_MAGIC = b"ML\xefR"
_STRINGS = 0  # the section's number
_ALIGNED = 0x80
_RANDOM_NAME = re.compile(rb"resource_\d{9,}")


def number_resources(path: Path) -> int:
    """Renames the large constants of a bytecode file, in place, and returns how many there are.

    Raises:
        ValueError: the file is not as this version of the format is.
    """
    with path.open("r+b") as file:
        if file.read(4) != _MAGIC:
            raise ValueError(f"number_resources: expected MLIR bytecode, got {path.name}")
        _read_number(file)  # version
        while file.read(1) not in (b"\0", b""):  # producer
            pass
        while True:
            start = file.tell()
            head = file.read(1)
            if not head:
                raise ValueError(f"number_resources: expected a table of strings, got none in {path.name}")
            length = _read_number(file)
            if head[0] & _ALIGNED:
                alignment = _read_number(file)
                file.seek(-file.tell() % alignment, 1)
            if head[0] & ~_ALIGNED == _STRINGS:
                break
            file.seek(length, 1)
        if head[0] & _ALIGNED:
            raise ValueError("number_resources: expected a table of strings without alignment, got an aligned one")
        strings = _strings(file.read(length))
        rest = file.read()
        _check_unaligned(rest)
        count = 0
        for i, string in enumerate(strings):
            if _RANDOM_NAME.fullmatch(string):
                strings[i] = b"mtl4_resource_%06d" % count
                count += 1
        table = _table(strings)
        file.seek(start)
        file.write(head + _number(len(table)) + table + rest)
        file.truncate()
    return count


def _strings(table: bytes) -> list[bytes]:
    count, position = _number_at(table, 0)
    lengths = []
    for _ in range(count):
        length, position = _number_at(table, position)
        lengths.append(length)
    strings = []
    for length in reversed(lengths):  # the table has them from the last to the first
        strings.append(table[position : position + length - 1])
        position += length
    if position != len(table):
        raise ValueError("number_resources: expected a table of strings that ends with the last of them")
    return strings


def _table(strings: list[bytes]) -> bytes:
    lengths = b"".join(_number(len(string) + 1) for string in reversed(strings))
    return _number(len(strings)) + lengths + b"".join(string + b"\0" for string in strings)


def _check_unaligned(sections: bytes) -> None:
    """Sections after the strings move; none of them may depend on where it is."""
    position = 0
    while position < len(sections):
        head = sections[position]
        length, position = _number_at(sections, position + 1)
        if head & _ALIGNED:
            raise ValueError("number_resources: expected no aligned section after the strings, got one")
        position += length


def _read_number(file: BinaryIO) -> int:
    start = file.tell()
    value, size = _number_at(file.read(9), 0)
    file.seek(start + size)
    return value


def _number_at(data: bytes, position: int) -> tuple[int, int]:
    """A variable-length number, whose trailing zero bits tell how many bytes follow, and where it ends."""
    first = data[position]
    if first == 0:
        return int.from_bytes(data[position + 1 : position + 9], "little"), position + 9
    size = (first & -first).bit_length()
    return int.from_bytes(data[position : position + size], "little") >> size, position + size


def _number(value: int) -> bytes:
    size = max(1, -(-value.bit_length() // 7))
    if size > 8:
        return b"\0" + value.to_bytes(8, "little")
    return ((value << 1 | 1) << (size - 1)).to_bytes(size, "little")
