"""Primitives: ELF sections, and a cursor over bytes."""

import struct


class Reader:
    """A cursor over little-endian data."""

    def __init__(self, data: bytes, offset: int = 0):
        self.data, self.offset = data, offset

    def take(self, code: str) -> int:
        (value,) = struct.unpack_from("<" + code, self.data, self.offset)
        self.offset += struct.calcsize("<" + code)
        return value

    def uleb(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.offset]
            self.offset += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def sleb(self) -> int:
        start = self.offset
        value = self.uleb()
        bits = 7 * (self.offset - start)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value

    def string(self) -> str:
        end = self.data.index(b"\0", self.offset)
        text = self.data[self.offset : end].decode(errors="replace")
        self.offset = end + 1
        return text


def elf_sections(data: bytes) -> dict[str, bytes]:
    """The sections of a 64-bit ELF file by name."""
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("expected a 64-bit ELF library")
    (headers,) = struct.unpack_from("<Q", data, 40)
    size, count, names_index = struct.unpack_from("<HHH", data, 58)
    entries = [struct.unpack_from("<IIQQQQ", data, headers + i * size) for i in range(count)]
    names = Reader(data)
    sections = {}
    for name, kind, _, _, offset, length in entries:
        names.offset = entries[names_index][4] + name
        sections[names.string()] = b"" if kind == 8 else data[offset : offset + length]
    return sections
