"""The symbols of Mach-O files, for machines without Apple's tools."""

import struct
from pathlib import Path
from typing import NamedTuple

_MAGIC_64 = 0xFEEDFACF
_LC_SYMTAB = 0x2
_STAB, _EXTERNAL, _TYPE = 0xE0, 0x01, 0x0E  # bits of an entry's type


class Symbols(NamedTuple):
    defined: set[str]  # as far as other files can see them: of an object, those that will be hidden as well
    undefined: set[str]


def symbols(path: Path) -> Symbols:
    """The external symbols of an object or a dylib, as they are spelled there (C names start with an underscore)."""
    data = path.read_bytes()
    magic, _, _, _, commands = struct.unpack_from("<5I", data)
    if magic != _MAGIC_64:
        raise ValueError(f"{path}: expected a 64-bit Mach-O file, got magic {magic:#x}")
    found = Symbols(set(), set())
    place = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, place)
        if command == _LC_SYMTAB:
            first, count, strings, _ = struct.unpack_from("<4I", data, place + 8)
            _read(data, first, count, strings, found)
        place += size
    return found


def _read(data: bytes, first: int, count: int, strings: int, found: Symbols) -> None:
    for name, kind, _, _, value in struct.iter_unpack("<IBBHQ", data[first : first + 16 * count]):
        if kind & _STAB or not kind & _EXTERNAL:
            continue
        text = data[strings + name : data.index(b"\0", strings + name)].decode()
        if kind & _TYPE == 0 and value == 0:
            found.undefined.add(text)
        else:
            found.defined.add(text)
