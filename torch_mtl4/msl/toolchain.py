"""Finds a compiler, and turns sources into shared libraries that are cached on disk.

A clang of version 19 or newer is taken from the system, else the clang inside the `ziglang` wheel.
TORCH_MTL4_MSL_CXX names another compiler command; TORCH_MTL4_MSL_CACHE another cache directory.
"""

import functools
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .errors import CompileError, CompilerNotFoundError

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
RUNTIME = HERE / "runtime"
HEADERS_IN_DEBUG_INFO = "/msl/include"  # so that a cached library does not depend on where the package lies
OLDEST_CLANG = 19
NEWEST_CLANG = 30

# A fixed target: with AVX512-BF16 the conversions to bfloat would flush denormals on some machines only.
_TARGET = ["-march=x86-64-v3"] if platform.machine() == "x86_64" else []
_COMMON = [
    "-std=c++23",
    "-fdeclspec",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fno-threadsafe-statics",
    "-fno-strict-aliasing",
    "-fno-builtin-memset",
    "-fstack-clash-protection",
    "-ftls-model=initial-exec",
    "-gline-tables-only",
    "-gdwarf-4",
    "-fdebug-compilation-dir=.",
    f"-fdebug-prefix-map={INCLUDE}={HEADERS_IN_DEBUG_INFO}",
    "-nostdinc",
    "-w",
    "-Wno-invalid-constexpr",
    "-Wno-c++11-narrowing",
    "-Xclang",
    "-cl-single-precision-constant",
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-Xclang",
    "-fbfloat16-excess-precision=none",
    f"-I{INCLUDE}",
    *_TARGET,
]
_FAST = ["-O2"]
# The thread sanitizer's instrumentation skips odd access sizes, so the vectorisers stay off.
_CHECKED = [
    "-O1",
    "-fno-vectorize",
    "-fno-slp-vectorize",
    "-fsanitize=thread",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-mllvm",
    "-tsan-instrument-read-before-write=1",
]
_UNDEFINED = [
    "-fsanitize=array-bounds,alignment,shift,integer-divide-by-zero,float-cast-overflow",
    "-fsanitize-recover=all",
]
_RUNTIME_FLAGS = ["-std=c++20", "-O2", "-g1", "-fPIC", "-ftls-model=initial-exec", "-fno-sanitize=all", "-pthread"]


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler driver: the command, and what `--version` says."""

    command: tuple[str, ...]
    version: str

    @property
    def is_zig(self) -> bool:
        return "zig" in Path(self.command[0]).name or "ziglang" in self.command

    def run(self, arguments: list[str], stdin: str | None = None) -> subprocess.CompletedProcess:
        return subprocess.run([*self.command, *arguments], capture_output=True, text=True, input=stdin)

    def kernel_flags(self, checked: bool) -> list[str]:
        return [*_COMMON, *(_CHECKED + _UNDEFINED if checked else _FAST)]


@functools.cache
def find_compiler() -> Compiler:
    """The compiler that builds kernels; raises CompilerNotFoundError with what to install."""
    if command := os.environ.get("TORCH_MTL4_MSL_CXX"):
        return _probe(shlex.split(command))
    for name in [*(f"clang++-{v}" for v in range(NEWEST_CLANG, OLDEST_CLANG - 1, -1)), "clang++"]:
        path = shutil.which(name)
        if path and _clang_major(compiler := _probe([path])) >= OLDEST_CLANG:
            return compiler
    if importlib.util.find_spec("ziglang"):
        return _probe([sys.executable, "-m", "ziglang", "c++"])
    raise CompilerNotFoundError(
        f"torch_mtl4.msl needs clang {OLDEST_CLANG} or newer: `pip install ziglang`, or "
        "`apt-get install --no-install-recommends clang-19`, or set TORCH_MTL4_MSL_CXX"
    )


def _probe(command: list[str]) -> Compiler:
    try:
        result = subprocess.run([*command, "--version"], capture_output=True, text=True)
    except OSError as error:
        raise CompilerNotFoundError(f"TORCH_MTL4_MSL_CXX: cannot run {shlex.join(command)}: {error}") from None
    return Compiler(tuple(command), result.stdout.splitlines()[0] if result.stdout else "unknown")


def _clang_major(compiler: Compiler) -> int:
    match = re.search(r"clang version (\d+)", compiler.version)
    return int(match.group(1)) if match else 0


def cache_directory() -> Path:
    root = os.environ.get("TORCH_MTL4_MSL_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(root) if root else base / "torch_mtl4" / "msl"
    path.mkdir(parents=True, exist_ok=True)
    return path


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@functools.cache
def own_sources_digest() -> str:
    """Hash of the headers and the runtime: a kernel library is valid for exactly these."""
    files = sorted(p for folder in (INCLUDE, RUNTIME) for p in folder.rglob("*") if p.is_file())
    return digest(*(f"{p.relative_to(HERE)}\0{p.read_text()}" for p in files))


def publish(path: Path, write) -> Path:
    """Lets `write(temporary)` make a file and moves it into place at once, so that parallel builds do not meet."""
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            temporary = Path(folder) / path.name
            write(temporary)
            os.replace(temporary, path)
    return path


@functools.cache
def runtime_library() -> Path:
    """The runtime, built once for each compiler and version of its sources."""
    compiler = find_compiler()
    name = f"libmslrt-{digest(compiler.version, own_sources_digest(), *_RUNTIME_FLAGS)}.so"

    def build(output: Path):
        sources = sorted(str(p) for p in RUNTIME.glob("*.cpp"))
        result = compiler.run([*_RUNTIME_FLAGS, "-shared", f"-Wl,-soname,{name}", "-o", str(output), *sources])
        if result.returncode:
            raise CompileError("the MSL runtime", result.stderr)

    return publish(cache_directory() / name, build)


def preprocess(path: Path, flags: list[str]) -> str:
    """Macro expansion of a .metal file; the <metal_*> headers stand for macros only."""
    command = ["-E", "-x", "c++", "-std=c++23", "-nostdinc", "-undef", "-Wno-builtin-macro-redefined"]
    result = find_compiler().run([*command, f"-I{INCLUDE}", *flags, str(path)])
    if result.returncode:
        raise CompileError(path.name, result.stderr)
    return result.stdout


def compile_kernels(source: str, name: str, checked: bool) -> Path:
    """Builds rewritten C++ into a shared library, or takes it from the cache."""
    compiler = find_compiler()
    flags = compiler.kernel_flags(checked)
    key = digest(source, compiler.version, own_sources_digest(), *flags)

    def build(output: Path):
        cpp = output.with_suffix(".cpp")
        cpp.write_text(source)
        obj = output.with_suffix(".o")
        result = compiler.run([*flags, "-c", str(cpp), "-o", str(obj)])
        if result.returncode:
            raise CompileError(name, result.stderr)
        runtime = runtime_library()
        result = compiler.run(
            ["-shared", "-o", str(output), str(obj), str(runtime), "-lm", f"-Wl,-rpath,{runtime.parent}"]
        )
        if result.returncode:
            raise CompileError(name, result.stderr)

    return publish(cache_directory() / f"{re.sub(r'[^A-Za-z0-9]', '_', name)}-{key}.so", build)


def check_syntax(source: str, flags: list[str]) -> tuple[bool, str]:
    """Type-checks C++ without generating code: (accepted, diagnostics)."""
    result = find_compiler().run([*flags, "-fsyntax-only", "-ferror-limit=0", "-x", "c++", "-"], stdin=source)
    return result.returncode == 0, result.stderr


def syntax_flags() -> list[str]:
    """Flags for `check_syntax` of rewritten kernels."""
    return find_compiler().kernel_flags(checked=False)
