"""The Metal sources of the package: one flattened ASCII text an op, which is what a Mac compiles at run time.

Needs nothing but the standard library: setup.py uses it as well.
"""

import re
from pathlib import Path

_OWN_INCLUDE = re.compile(r'^#include "([^"]+)"$')


def folder() -> Path:
    """Where metal/ is: beside this file in an installed package, one level up in a checkout."""
    installed = Path(__file__).parent / "metal"
    return installed if installed.is_dir() else Path(__file__).parents[1] / "metal"


def names() -> list[str]:
    """The sources that there are: one for each folder that holds a .metal file of its name."""
    return sorted(path.stem for path in folder().glob("*/*.metal") if path.stem == path.parent.name)


def flattened(name: str) -> str:
    """The text of metal/<name>/<name>.metal with every include of our own in its place, once.

    Lines keep the file and the number they came from.

    Raises:
        ValueError: there is no such source, or it includes a file that is not there, or is not ASCII.
    """
    if name not in names():
        raise ValueError(f"flattened: expected one of {', '.join(names())}, got {name!r}")
    return "\n".join(_lines(f"{name}/{name}.metal", set())) + "\n"


def _lines(path: str, seen: set[str]) -> list[str]:
    seen.add(path)
    file = folder() / path
    try:
        text = file.read_text(encoding="ascii")
    except (FileNotFoundError, UnicodeDecodeError) as e:
        raise ValueError(f"flattened: expected {path} to be a file of ASCII text, got {e}") from e
    lines = [f'#line 1 "{path}"']
    for number, line in enumerate(text.splitlines(), 1):
        include = _OWN_INCLUDE.match(line)
        if line == "#pragma once":
            lines.append("")
        elif include is None:
            lines.append(line)
        elif include[1] not in seen:
            lines += [*_lines(include[1], seen), f'#line {number + 1} "{path}"']
        else:
            lines.append("")
    return lines
