"""Finds the compiler: a clang of the system, version 19 or newer, else the one inside the `ziglang` wheel."""

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import CompilerNotFoundError

OLDEST_CLANG = 19
NEWEST_CLANG = 30
_VARIABLE = "TORCH_MTL4_MSL_CXX"
_INSTALL = (
    f"torch_mtl4.msl needs clang {OLDEST_CLANG} or newer: `pip install ziglang`, or "
    f"`apt-get install --no-install-recommends clang-{OLDEST_CLANG}`, or set {_VARIABLE}"
)


@dataclass(frozen=True)
class Compiler:
    """Commands that compile kernels, that compile C++ for this host, and that link a shared library."""

    kernels: tuple[str, ...]
    host: tuple[str, ...]
    linker: tuple[str, ...]
    soname: str
    version: str


def run(command: tuple[str, ...], arguments: list[str], stdin: str | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([*command, *arguments], capture_output=True, text=True, input=stdin)


@functools.cache
def find_compiler() -> Compiler:
    """The compiler; TORCH_MTL4_MSL_CXX names a command, or "ziglang" for the wheel.

    Raises CompilerNotFoundError with what to install.
    """
    if command := os.environ.get(_VARIABLE):
        return _chosen(command)
    for name in [*(f"clang++-{v}" for v in range(NEWEST_CLANG, OLDEST_CLANG - 1, -1)), "clang++"]:
        path = shutil.which(name)
        if path and (version := _version((path,))) and clang_major(version) >= OLDEST_CLANG:
            return _clang((path,), version)
    if compiler := _ziglang():
        return compiler
    raise CompilerNotFoundError(_INSTALL)


def _chosen(command: str) -> Compiler:
    if command == "ziglang":
        if compiler := _ziglang():
            return compiler
        raise CompilerNotFoundError(f"{_VARIABLE}=ziglang: expected the wheel to be installed (`pip install ziglang`)")
    words = tuple(shlex.split(command))
    version = _version(words)
    if version is None:
        raise CompilerNotFoundError(f"{_VARIABLE}: expected the command of a clang, cannot run {command!r}")
    if clang_major(version) < OLDEST_CLANG:
        raise CompilerNotFoundError(f"{_VARIABLE}: expected clang {OLDEST_CLANG} or newer, got {version!r}")
    return _clang(words, version)


def _clang(command: tuple[str, ...], version: str) -> Compiler:
    return Compiler(command, command, (*command, "-shared", "-lm"), "-Wl,-soname,", version)


def _ziglang() -> Compiler | None:
    """Of zig, `c++` knows where headers of the C library are; `clang` and `ld.lld` are the plain tools, and fast."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        return None
    zig = str(Path(spec.submodule_search_locations[0]) / "zig")
    version = _version((zig, "clang"))
    if version is None:
        return None
    target = "x86_64-linux-gnu"
    return Compiler(
        (zig, "clang", f"--target={target}"),
        (zig, "c++", "-target", target),
        (zig, "ld.lld", "-shared"),
        "-soname=",
        f"{version} (zig)",
    )


def _version(command: tuple[str, ...]) -> str | None:
    try:
        result = run(command, ["--version"])
    except OSError:
        return None
    return result.stdout.splitlines()[0] if result.stdout and result.returncode == 0 else None


def clang_major(version: str) -> int:
    match = re.search(r"clang version (\d+)", version)
    return int(match.group(1)) if match else 0
