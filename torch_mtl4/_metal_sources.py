"""The Metal sources of the package: one flattened ASCII text an op, which is what a Mac compiles at run time.

Needs nothing but the standard library: setup.py uses it as well, to put the texts into the library for macOS.
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
    return flattened_file(f"{name}/{name}.metal")


def flattened_file(path: str) -> str:
    """The same of any file in metal/.

    Raises:
        ValueError: it or what it includes is not there, or is not ASCII.
    """
    return "\n".join(_lines(path, set())) + "\n"


def as_cpp() -> str:
    """C++ that defines csrc/runtime/sources.h with all texts in it."""
    texts = "\n".join(f'    {{"{name}", R"MSL({flattened(name)})MSL"}},' for name in names())
    return f"""// Written by torch_mtl4/_metal_sources.py.
#include "runtime/sources.h"

#include <torch/headeronly/util/Exception.h>

#include <utility>

namespace mtl4::runtime {{

std::string_view metal_source(std::string_view name) {{
  static constexpr std::pair<std::string_view, std::string_view> kSources[] = {{
{texts}
  }};
  for (const auto& [known, text] : kSources)
    if (known == name) return text;
  STD_TORCH_CHECK(false, "torch_mtl4: there is no Metal source named ", name);
}}

}}  // namespace mtl4::runtime
"""


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
