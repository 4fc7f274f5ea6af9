"""Builds the library for arm64 macOS on any machine, as setup.py would on a Mac, and checks what it needs of torch.

    PYTHONPATH=tests python -m host.cross [--link] [FOLDER]

The compiler is zig's clang with zig's Darwin headers; torch's headers come from its macOS wheel, Metal's declarations
are made by metal_header.py; the linker is LLVM's, with apple_stubs.py in place of Apple's libraries. Nothing of what is
built can be loaded here: that it compiles without a warning, and links against every torch version, is what this shows.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

# Before the platform is played: these ask about it when they are imported.
import setuptools.command.build_ext
import torch.utils.cpp_extension  # noqa: F401

from . import apple_stubs, macho, metal_header, wheels

ROOT = Path(__file__).parents[2]
HEADERS = Path(__file__).parent / "headers"
ZIG = [sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-macos.14.0"]
# A wrong selector on an id<Protocol> is no more than a warning without ARC. Warnings of zig's own choice are not ours.
# Optimization would only hide what is wanted of other libraries.
CHECKING = ["-O0", "-fno-sanitize=undefined", "-fblocks", "-fno-objc-arc", "-Wobjc-method-access"]
CHECKING.append("-Wno-nullability-completeness")


class CompilerError(RuntimeError):
    """The compiler said something, and be it a warning."""


@contextmanager
def _playing_macos():
    """setup.py asks these two what it builds for."""
    machine = mock.patch.object(platform, "machine", lambda: "arm64")
    with mock.patch.object(sys, "platform", "darwin"), machine, mock.patch.dict(os.environ):
        yield


def jobs(folder: Path) -> list[tuple[str, Path, list[str]]]:
    """(source, object, flags) of everything that setup.py compiles into torch_mtl4._C on a Mac."""
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        with _playing_macos():
            distribution = setuptools._distutils.core.run_setup("setup.py", stop_after="init")
            build = distribution.get_command_obj("build_ext", create=True)
            build.build_temp = str(folder)
            extension = next(e for e in distribution.ext_modules if e.name == "torch_mtl4._C")
            listed = build.jobs(extension)
    finally:
        os.chdir(before)
    common = [flag for flag in extension.extra_compile_args if not flag.startswith("-isystem")]
    common += [f"-D{name}={value}" for name, value in extension.define_macros]
    common += [f"-I{ROOT / path}" for path in extension.include_dirs]
    return [
        (str(ROOT / source), folder / kind / (source.strip("/").replace("/", "_") + ".o"), [*common, *flags])
        for source, kind, flags in listed
    ]


def compile_one(source: str, target: Path, flags: Sequence[str], torch: Path, metal: Path) -> None:
    """Raises CompilerError with all that was said, if anything was."""
    target.parent.mkdir(parents=True, exist_ok=True)
    includes = [HEADERS, metal, torch / "torch/include", torch / "torch/include/torch/csrc/api/include"]
    command = [*ZIG, *flags, *CHECKING, *(f"-isystem{path}" for path in includes), "-c", source, "-o", str(target)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode or result.stderr.strip():
        raise CompilerError(f"{source}:\n{result.stderr}")


def compile_all(folder: Path) -> list[Path]:
    """The objects of the library, compiled against the headers of the oldest torch."""
    torch, metal = wheels.torch(wheels.TORCH_VERSIONS[0]), folder / "declarations"
    metal_header.write(wheels.metal_cpp(), metal)
    listed = jobs(folder)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: compile_one(*job, torch, metal), listed))
    return [target for _, target, _ in listed]


def wanted_symbols(objects: Sequence[Path]) -> set[str]:
    """What the objects take from elsewhere."""
    found = [macho.symbols(path) for path in objects]
    return set().union(*(s.undefined for s in found)) - set().union(*(s.defined for s in found))


def is_torchs(symbol: str) -> bool:
    """A C function of torch's stable ABI (C names start with an underscore in Mach-O)."""
    return symbol.startswith(("_aoti_torch_", "_torch_"))


def is_of_the_compiler(symbol: str) -> bool:
    """Of its own runtime or of the C++ library: torch's dylibs show only a part of what those export."""
    return bool(re.match(r"__Z(NK?|T[IV]N?)St|__Zdl|___isPlatformVersionAtLeast$", symbol))


def exported_by_torch(version: str) -> set[str]:
    return macho.symbols(wheels.torch(version) / "torch/lib/libtorch_cpu.dylib").defined


def linker() -> str | None:
    """LLVM's linker for Mach-O, of any version."""
    names = ["ld64.lld", *(f"ld64.lld-{version}" for version in range(30, 14, -1))]
    return next(filter(None, map(shutil.which, names)), None)


def link(objects: Sequence[Path], target: Path, version: str) -> None:
    """Links as setup.py does, against one version of torch; what neither that nor a system library exports is an error.

    Raises:
        CompilerError: what the linker said.
    """
    torch, stubs = wheels.torch(version) / "torch/lib", target.parent / "stubs"
    apple_stubs.write(sorted(torch.glob("*.dylib")), stubs)
    command = [linker(), "-dylib", "-arch", "arm64", "-platform_version", "macos", "14.0", "14.0", "-o", str(target)]
    command += ["-syslibroot", str(stubs), f"-L{stubs}", f"-L{torch}", f"-F{stubs}"]
    command += ["-ltorch_cpu", "-lSystem", "-lc++", "-lobjc", "-framework", "Foundation", "-framework", "Metal"]
    for symbol in sorted(filter(is_of_the_compiler, wanted_symbols(objects))):
        command += ["-U", symbol]
    result = subprocess.run([*command, *map(str, objects)], capture_output=True, text=True)
    if result.returncode or result.stderr.strip():
        raise CompilerError(result.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=wheels.cache() / "build")
    parser.add_argument("--link", action="store_true", help="link as well, against every version (wants ld64.lld)")
    options = parser.parse_args()
    begin = time.monotonic()
    objects = compile_all(options.folder)
    facts = {"objects": len(objects), "seconds": round(time.monotonic() - begin, 1)}
    wanted = wanted_symbols(objects)
    facts["of torch"] = sum(map(is_torchs, wanted))
    for version in wheels.TORCH_VERSIONS:
        facts[f"missing from torch {version}"] = sorted(filter(is_torchs, wanted - exported_by_torch(version)))
        if options.link:
            link(objects, options.folder / f"_C-{version}.so", version)
            facts[f"linked against torch {version}"] = round(time.monotonic() - begin, 1)
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
