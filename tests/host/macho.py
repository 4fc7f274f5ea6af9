"""The symbols of Mach-O files, for machines without Apple's tools."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MAGIC_64 = 0xFEEDFACF
_LC_SYMTAB = 0x2
_LC_LOAD_DYLIB = {0xC, 0x80000018, 0x8000001F}  # plainly, weakly, and exported again
_STAB, _EXTERNAL, _TYPE = 0xE0, 0x01, 0x0E  # bits of an entry's type


class Symbols(NamedTuple):
    defined: set[str]  # as far as other files can see them: of an object, those that will be hidden as well
    undefined: set[str]


def symbols(path: Path) -> Symbols:
    """The external symbols of an object or a dylib, as they are spelled there (C names start with an underscore)."""
    found = Symbols(set(), set())
    for text, _, is_defined in _externals(path.read_bytes(), path):
        (found.defined if is_defined else found.undefined).add(text)
    return found


def imports(path: Path) -> dict[str, set[str]]:
    """What a dylib takes from each other one, by that one's install name."""
    data = path.read_bytes()
    names = [
        data[place + offset : data.index(b"\0", place + offset)].decode()
        for command, place in _commands(data, path)
        if command in _LC_LOAD_DYLIB
        for (offset,) in [struct.unpack_from("<I", data, place + 8)]
    ]
    taken: dict[str, set[str]] = {name: set() for name in names}
    for text, description, is_defined in _externals(data, path):
        ordinal = description >> 8
        if not is_defined and 1 <= ordinal <= len(names):
            taken[names[ordinal - 1]].add(text)
    return taken


def _commands(data: bytes, path: Path) -> Iterator[tuple[int, int]]:
    """(kind, place) of each load command."""
    magic, _, _, _, commands = struct.unpack_from("<5I", data)
    if magic != _MAGIC_64:
        raise ValueError(f"{path}: expected a 64-bit Mach-O file, got magic {magic:#x}")
    place = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, place)
        yield command, place
        place += size


def _externals(data: bytes, path: Path) -> Iterator[tuple[str, int, bool]]:
    """(name, description, whether it is defined here) of each external symbol."""
    for command, place in _commands(data, path):
        if command != _LC_SYMTAB:
            continue
        first, count, strings, _ = struct.unpack_from("<4I", data, place + 8)
        for name, kind, _, description, value in struct.iter_unpack("<IBBHQ", data[first : first + 16 * count]):
            if not kind & _STAB and kind & _EXTERNAL:
                text = data[strings + name : data.index(b"\0", strings + name)].decode()
                yield text, description, kind & _TYPE != 0 or value != 0
