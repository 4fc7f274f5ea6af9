"""From a .metal file to a library of kernels."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from . import toolchain
from .frontend import FunctionConstant, translate
from .kernel import LAYOUTS
from .library import Library
from .tiers import DEFAULT_TIER, find_tier


def compile(
    source: str | Path,
    *,
    name: str = "kernel.metal",
    include: Sequence[str | Path] = (),
    defines: Mapping[str, object] | None = None,
    constants: Mapping[int | str, object] | None = None,
    only: str | None = None,
    tier: str = DEFAULT_TIER,
    checked: bool = True,
    count: bool = False,
    layout: str = "m5",
    without_barrier: int | None = None,
) -> Library:
    """Compiles Metal Shading Language for the CPU.

    Args:
        source: a path, or the text of the source (any string with a newline or a brace).
        name: what diagnostics call a source that is given as text.
        include: directories for `#include`.
        defines: preprocessor macros.
        constants: values of function constants, by index or by name. They become compile-time constants, as in a
            Metal pipeline; one without a value is zero, and `is_function_constant_defined` tells.
        only: regular expression; of the kernels (a source may instantiate thousands) only those are built.
        tier: operating system whose compiler is played, see `tiers.TIERS`; "macos27:4.0" asks it for MSL 4.0. Features
            that it does not have are refused with the tier that has them.
        checked: watch every memory access (races, bounds, uninitialised reads) and undefined behaviour; else fast.
        count: count what each dispatch costs, see `cost.py`; `Library.cost` has the counts. Slower, for it compiles
            without optimisation; with checked=False nothing else is watched.
        layout: which thread owns which element of a cooperative tensor: "m5", "pre_m5" or "scrambled".
        without_barrier: leave out that barrier of the text, counted from 0; for mutation tests.

    Returns:
        A library of the kernels; a repeated call with the same source takes it from a cache on disk.

    Raises:
        CompileError: the source was rejected; the message holds the diagnostics with lines of the .metal file.
        MslSyntaxError: the front end does not understand a declaration.
        ValueError: an unknown tier, layout or function constant.
        CompilerNotFoundError: there is no clang; the message says what to install.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"compile: expected layout to be one of {', '.join(LAYOUTS)}, got {layout!r}")
    text, name = preprocessed(source, name, include, defines, tier)
    cpp, rewriter = translate(text, dict(constants or {}), only, without_barrier)
    check_constants(constants or {}, rewriter.constants)
    flags = [*toolchain.kernel_flags(checked, count), *find_tier(tier).header_flags()]
    path = toolchain.compile_kernels(cpp, name, flags)
    return Library(path, rewriter.kernels, rewriter.constants, checked, count, layout)


def check_constants(given: Mapping[int | str, object], declared: Sequence[FunctionConstant]) -> None:
    known = {c.name for c in declared} | {c.index for c in declared}
    for key in given:
        if key not in known:
            names = ", ".join(f"{c.name} ({c.index})" for c in declared) or "none: the source declares no constants"
            raise ValueError(f"compile: expected constants among {names}, got {key!r}")


def preprocessed(source, name, include, defines, tier) -> tuple[str, str]:
    """(macro-expanded text, name of the source)."""
    flags = [
        *find_tier(tier).defines(),
        *(f"-D{key}={value}" for key, value in (defines or {}).items()),
        *(f"-I{path}" for path in include),
    ]
    if path := source_path(source):
        return toolchain.preprocess(path, path.name, flags), path.name
    return toolchain.preprocess(source, name, flags), name


def source_path(source: str | Path) -> Path | None:
    """The file of a source that is not given as text."""
    if isinstance(source, Path) or not any(mark in source for mark in "\n{"):
        path = Path(source)
        if not path.is_file():
            raise FileNotFoundError(f"compile: expected a .metal file or its text, got {str(source)!r}")
        return path
    return None


def read_source(source: str | Path, name: str) -> tuple[str, str]:
    """(text of a source, its path or name)."""
    if path := source_path(source):
        return path.read_text(errors="replace"), str(path)
    return source, name
