"""Turns sources into shared libraries: the runtime, the precompiled header of the kernels, the kernels."""

import functools
import json
import os
import platform
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import cache
from .compilers import find_compiler, run
from .errors import CompileError

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
RUNTIME = HERE / "runtime"
HEADERS_IN_DEBUG_INFO = "/msl/include"  # so that a cached library does not depend on where the package lies

_COMMON = [
    "-std=c++2c",  # for messages of static_assert that name types
    "-march=x86-64-v3",  # fixed: with AVX512-BF16, conversions to bfloat would flush denormals on some machines only
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
]
_FAST = ["-O2"]
# Clang's fast selection of instructions takes a bfloat that a function gave back for a float, if a branch follows.
_UNOPTIMISED = ["-O0", "-mllvm", "-fast-isel=false"]
# The thread sanitizer's instrumentation skips odd access sizes, so the vectorisers stay off.
_WATCHED = [
    "-fno-vectorize",
    "-fno-slp-vectorize",
    "-fsanitize=thread",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-mllvm",
    "-tsan-instrument-read-before-write=1",
    "-mllvm",
    "-tsan-instrument-atomics=0",  # atomic.h reports them itself
]
_UNDEFINED_BEHAVIOUR = [
    "-fsanitize=array-bounds,alignment,shift,integer-divide-by-zero,float-cast-overflow",
    "-fsanitize-recover=all",
]
_RUNTIME_FLAGS = [
    "-std=c++20",
    "-O2",
    "-g1",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-ftls-model=initial-exec",
    "-fno-sanitize=all",
    "-fno-stack-protector",
    "-mf16c",
    "-pthread",
]
_HEADER_FLAGS = ["-x", "c++-header", "-fpch-instantiate-templates", "-Xclang", "-fno-pch-timestamp"]
_PREPROCESS_FLAGS = ["-E", "-x", "c++", "-std=c++23", "-nostdinc", "-undef", "-Wno-builtin-macro-redefined"]


def kernel_flags(checked: bool, count: bool = False) -> list[str]:
    if not checked and not count:
        return [*_COMMON, *_FAST]
    # An optimiser would merge and move the accesses that are to be counted.
    return [*_COMMON, *(_UNOPTIMISED if count else ["-O1"]), *_WATCHED, *(_UNDEFINED_BEHAVIOUR if checked else [])]


@functools.cache
def own_sources_digest() -> str:
    """Hash of the headers and the runtime: a kernel library is valid for exactly these."""
    files = sorted(p for folder in (INCLUDE, RUNTIME) for p in folder.rglob("*") if p.is_file())
    return cache.digest(*(f"{p.relative_to(HERE)}\0{p.read_text()}" for p in files))


def require_host() -> None:
    """Raises NotImplementedError where compiled kernels cannot run."""
    if platform.system() != "Linux":
        raise NotImplementedError(
            f"torch_mtl4.msl: kernels run on Linux, got {platform.system()}: the reader of debug information knows "
            "ELF, the fault handler Linux signal frames. `check` works here"
        )
    if platform.machine() != "x86_64":
        raise NotImplementedError(
            f"torch_mtl4.msl: kernels run on x86-64, got {platform.machine()}: runtime/context_switch.h has no switch "
            "between stacks for it, runtime/faults.cpp not its registers. `check` works here"
        )


@functools.cache
def runtime_library() -> Path:
    """The runtime, built once for each compiler and version of its sources."""
    require_host()
    compiler = find_compiler()
    name = f"libmslrt-{cache.digest(repr(compiler), own_sources_digest(), *_RUNTIME_FLAGS)}.so"

    def build(output: Path):
        def compile_one(source: Path) -> str:
            obj = str(output.with_name(source.stem + ".o"))
            _must(run(compiler.host, [*_RUNTIME_FLAGS, "-c", str(source), "-o", obj]), "the MSL runtime")
            return obj

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, sorted(RUNTIME.glob("*.cpp"))))
        link = [*objects, compiler.soname + name, "-o", str(output)]
        _must(run(compiler.linker, link), "the MSL runtime")

    return cache.publish(name, build)


def precompiled_header(header: str, flags: Sequence[str]) -> Path:
    """A header of include/msl/ parsed once for each set of flags: most of a build would be parsing it."""
    compiler = find_compiler()
    path = INCLUDE / "msl" / header
    key = cache.digest(repr(compiler), own_sources_digest(), str(path), *flags)

    def build(output: Path):
        _must(run(compiler.kernels, [*flags, *_HEADER_FLAGS, str(path), "-o", str(output)]), header)

    return cache.publish(f"{path.stem}-{key}.pch", build)


def preprocess(source: Path | str, name: str, flags: Sequence[str]) -> str:
    """Macro expansion of a .metal file or of its text; the <metal_*> headers stand for macros only."""
    command = [*_PREPROCESS_FLAGS, f"-I{INCLUDE}", *flags]
    if isinstance(source, Path):
        result = run(find_compiler().kernels, [*command, str(source)])
    else:
        result = run(find_compiler().kernels, [*command, "-"], f"#line 1 {json.dumps(name)}\n{source}")
    return _must(result, name).stdout


def compile_kernels(source: str, name: str, flags: Sequence[str]) -> Path:
    """Builds rewritten C++ into a shared library, or takes it from the cache."""
    require_host()
    compiler = find_compiler()
    key = cache.digest(source, repr(compiler), own_sources_digest(), *flags, *_RUNTIME_FLAGS)

    def build(output: Path):
        obj = str(output.with_suffix(".o"))
        header = ["-include-pch", str(precompiled_header("msl.h", flags))]
        _must(run(compiler.kernels, [*flags, *header, "-c", "-x", "c++", "-", "-o", obj], source), name)
        _must(run(compiler.linker, [obj, str(runtime_library()), "-o", str(output)]), name)

    return cache.publish(f"{re.sub(r'[^A-Za-z0-9]', '_', name)}-{key}.so", build)


def check_syntax(source: str, header: str, flags: Sequence[str]) -> tuple[bool, str]:
    """Type-checks C++ that includes a header of include/msl/, and generates no code: (accepted, diagnostics)."""
    command = [*flags, "-include-pch", str(precompiled_header(header, flags)), "-fsyntax-only", "-ferror-limit=0"]
    result = run(find_compiler().kernels, [*command, "-x", "c++", "-"], source)
    return result.returncode == 0, result.stderr


def _must(result, what: str):
    if result.returncode:
        raise CompileError(what, result.stderr)
    return result
