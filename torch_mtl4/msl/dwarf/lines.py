"""The line program of a compilation unit: which instruction came from which line."""

from dataclasses import dataclass, field

from .reader import Reader


@dataclass
class LineProgram:
    """`rows` are (address, index into `files`, line), with file 0 where a sequence of code ends."""

    files: list[str] = field(default_factory=lambda: [""])
    rows: list[tuple[int, int, int]] = field(default_factory=list)


def read_line_program(section: bytes, offset: int) -> LineProgram:
    """Runs the program at `offset` of .debug_line; section 6.2 of the DWARF 4 standard."""
    r = Reader(section, offset)
    end = r.take("I") + r.offset
    version = r.take("H")
    program = LineProgram()
    if version > 4:
        return program
    start = r.take("I") + r.offset
    min_length = r.take("B")
    r.offset += 2 if version == 4 else 1  # operations per instruction, default_is_stmt
    line_base, line_range, opcode_base = r.take("b"), r.take("B"), r.take("B")
    lengths = [r.take("B") for _ in range(opcode_base - 1)]
    directories = [""]
    while name := r.string():
        directories.append(name + "/")
    while name := r.string():
        directory = directories[r.uleb()]
        r.uleb(), r.uleb()
        program.files.append(name if name.startswith("/") else directory + name)

    r.offset = start
    address, file, line = 0, 1, 1
    while r.offset < end:
        opcode = r.take("B")
        if opcode >= opcode_base:  # special: advances both
            adjusted = opcode - opcode_base
            address += adjusted // line_range * min_length
            line += line_base + adjusted % line_range
            program.rows.append((address, file, line))
        elif opcode == 0:  # extended
            length = r.uleb()
            following = r.offset + length
            kind = r.take("B")
            if kind == 1:  # end of sequence
                program.rows.append((address, 0, 0))
                address, file, line = 0, 1, 1
            elif kind == 2:  # set address
                address = r.take("Q")
            r.offset = following
        elif opcode == 1:  # copy
            program.rows.append((address, file, line))
        elif opcode == 2:  # advance pc
            address += r.uleb() * min_length
        elif opcode == 3:  # advance line
            line += r.sleb()
        elif opcode == 4:  # set file
            file = r.uleb()
        elif opcode == 8:  # const add pc
            address += (255 - opcode_base) // line_range * min_length
        elif opcode == 9:  # fixed advance pc
            address += r.take("H")
        else:
            for _ in range(lengths[opcode - 1]):
                r.uleb()
    # Where one sequence ends the next may begin: the beginning counts.
    program.rows.sort(key=lambda row: (row[0], row[1] != 0))
    return program
