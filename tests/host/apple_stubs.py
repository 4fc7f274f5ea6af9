"""Stand-ins (.tbd) for Apple's own libraries: what torch's dylibs take of them, and zig's list of libSystem."""

import re
from collections import defaultdict
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from . import macho

_CLASS = "_OBJC_CLASS_$_"
# What no dylib of torch takes, by the library that has it.
_MORE = {"Metal": {f"{_CLASS}MTLFunctionConstantValues"}}


def write(dylibs: Iterable[Path], folder: Path) -> None:
    """Puts lib<name>.tbd and <name>.framework/<name>.tbd into the folder: libSystem, libc++, libobjc, Metal, ..."""
    exports: dict[str, set[str]] = defaultdict(set)
    for dylib in dylibs:
        for library, symbols in macho.imports(dylib).items():
            exports[library] |= symbols
    for library, symbols in exports.items():
        name = library.rsplit("/", 1)[1].split(".")[0]
        place = f"{name}.framework/{name}.tbd" if ".framework/" in library else f"{name}.tbd"
        if library.startswith("/"):  # the others are torch's own, and at hand
            _write(folder / place, library, symbols | _MORE.get(name, set()))
    zigs = next(Path(find_spec("ziglang").origin).parent.glob("**/libSystem.tbd")).read_text()
    # Architectures that linkers of some years do not know.
    (folder / "libSystem.tbd").write_text(re.sub(r",\s*arm64e\.\w+-\w+|arm64e\.\w+-\w+,\s*", "", zigs))


def _write(path: Path, library: str, symbols: set[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    classes = sorted(s.removeprefix(_CLASS) for s in symbols if s.startswith(_CLASS))
    plain = sorted(s for s in symbols if not s.startswith("_OBJC_"))
    path.write_text(f"""--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '{library}'
exports:
  - targets: [ arm64-macos ]
    symbols: [ {_listed(plain)} ]
    objc-classes: [ {_listed(classes)} ]
...
""")


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
