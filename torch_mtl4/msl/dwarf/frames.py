"""Which calls were inlined at an address: the tree of subprograms and inlined subroutines."""

import bisect
from dataclasses import dataclass, field
from pathlib import Path

from .lines import LineProgram, read_line_program
from .reader import Reader, elf_sections

TAG_INLINED, TAG_SUBPROGRAM = 0x1D, 0x2E
AT_STMT_LIST, AT_LOW_PC, AT_HIGH_PC, AT_RANGES, AT_CALL_FILE, AT_CALL_LINE = 0x10, 0x11, 0x12, 0x55, 0x58, 0x59
FORM_ADDRESS = 0x01
_FIXED = {0x01: "Q", 0x05: "H", 0x06: "I", 0x07: "Q", 0x0B: "B", 0x0C: "B", 0x0E: "I", 0x11: "B", 0x12: "H", 0x13: "I"}
_FIXED |= {0x14: "Q", 0x17: "I", 0x20: "Q"}


@dataclass
class _Inlined:
    """A call that was inlined: where its code lies, and which line made the call."""

    ranges: list[tuple[int, int]]
    file: int
    line: int
    depth: int


@dataclass
class _Unit:
    lines: LineProgram
    inlined: list[_Inlined] = field(default_factory=list)


class FrameTable:
    """Maps addresses of a library to source positions, through all inlined calls."""

    def __init__(self, library: Path):
        self._sections = elf_sections(library.read_bytes())
        info = self._sections.get(".debug_info", b"")
        self._units: list[_Unit] = []
        offset = 0
        while offset < len(info):
            offset = self._read_unit(info, offset)

    def find(self, address: int) -> list[tuple[str, int]]:
        """(path, line) of the instruction at an address and of the calls around it, innermost first."""
        for unit in self._units:
            rows = unit.lines.rows
            i = bisect.bisect_right(rows, address, key=lambda row: row[0]) - 1
            if i < 0 or not rows[i][1]:
                continue
            while i > 0 and not rows[i][2] and rows[i - 1][1]:  # line 0 is generated code: take what stands before
                i -= 1
            calls = [c for c in unit.inlined if any(low <= address < high for low, high in c.ranges)]
            calls.sort(key=lambda c: -c.depth)
            positions = [rows[i][1:], *((c.file, c.line) for c in calls)]
            return [(unit.lines.files[file], line) for file, line in positions]
        return []

    def _read_unit(self, info: bytes, offset: int) -> int:
        r = Reader(info, offset)
        end = r.take("I") + r.offset
        version = r.take("H")
        abbreviations = self._abbreviations(r.take("I"))
        r.take("B")
        if version != 4:
            return end
        unit, base, depth = None, 0, 0
        while r.offset < end:
            code = r.uleb()
            if code == 0:
                depth -= 1
                continue
            tag, children, attributes = abbreviations[code]
            values = {name: (form, self._value(r, form)) for name, form in attributes}
            if unit is None:
                base = values.get(AT_LOW_PC, (0, 0))[1]
                program = read_line_program(self._sections[".debug_line"], values[AT_STMT_LIST][1])
                unit = _Unit(program)
                self._units.append(unit)
            elif tag == TAG_INLINED:
                file, line = (values.get(name, (0, 0))[1] for name in (AT_CALL_FILE, AT_CALL_LINE))
                unit.inlined.append(_Inlined(self._ranges(values, base), file, line, depth))
            depth += children
        return end

    def _abbreviations(self, offset: int) -> dict:
        r, table = Reader(self._sections[".debug_abbrev"], offset), {}
        while code := r.uleb():
            tag, children, attributes = r.uleb(), r.take("B"), []
            while True:
                name, form = r.uleb(), r.uleb()
                if not name and not form:
                    break
                attributes.append((name, form))
            table[code] = (tag, children, attributes)
        return table

    def _value(self, r: Reader, form: int) -> int:
        if form in _FIXED:
            return r.take(_FIXED[form])
        if form == 0x0D:  # sdata
            return r.sleb()
        if form in (0x0F, 0x15):  # udata, ref_udata
            return r.uleb()
        if form == 0x19:  # flag_present
            return 1
        if form == 0x08:
            r.string()
            return 0
        lengths = {0x03: lambda: r.take("H"), 0x04: lambda: r.take("I"), 0x09: r.uleb, 0x0A: lambda: r.take("B")}
        lengths[0x18] = r.uleb  # exprloc
        if form not in lengths:
            raise ValueError(f"unknown DWARF form {form:#x}")
        length = lengths[form]()
        r.offset += length
        return 0

    def _ranges(self, values: dict, base: int) -> list[tuple[int, int]]:
        if AT_RANGES not in values:
            low = values.get(AT_LOW_PC, (0, 0))[1]
            form, high = values.get(AT_HIGH_PC, (FORM_ADDRESS, low))
            return [(low, high if form == FORM_ADDRESS else low + high)]
        r, found = Reader(self._sections[".debug_ranges"], values[AT_RANGES][1]), []
        while True:
            low, high = r.take("Q"), r.take("Q")
            if low == high == 0:
                return found
            if low == 2**64 - 1:
                base = high
            else:
                found.append((base + low, base + high))
