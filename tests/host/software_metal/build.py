"""Builds the software Metal device, and the MPS backend of torch_mtl4 for it, on Linux: the .mm files as they are.

Needs clang, GNUstep (Debian: libgnustep-base-dev) and libBlocksRuntime (libblocksruntime-dev).
"""

import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths, library_paths

from torch_mtl4 import _metal_sources

from .. import metal_header, wheels

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
CLANG = next((name for name in ("clang++-19", "clang++") if shutil.which(name)), None)
# Of csrc/ops: the contracts. The library for Linux has declared the ops, and has the ops that print plans.
DECLARATIONS = wheels.cache() / "declarations"
REGISTRATIONS = ("schema.cpp", "plan_ops.cpp")
CODEC = ROOT / "csrc/cpu/kernels/mxfp8_codec.cpp"  # the self-check asks it, on the instruction set that is always there


def missing() -> str:
    """What is not installed, or nothing."""
    if CLANG is None:
        return "needs clang++"
    if shutil.which("gnustep-config") is None:
        return "needs GNUstep (Debian: libgnustep-base-dev)"
    header = "#include <Block.h>\nint main() {}"
    found = subprocess.run([CLANG, "-fsyntax-only", "-xc++", "-"], input=header, text=True, capture_output=True)
    return "needs libBlocksRuntime (Debian: libblocksruntime-dev)" if found.returncode else ""


def build() -> tuple[Path, Path]:
    """(the device, the backend): shared libraries in the user's cache, made anew when a source has changed."""
    backend = [path for folder in ("runtime", "mps", "ops", "plan") for path in _sources(ROOT / "csrc" / folder)]
    backend = [*(path for path in backend if path.name not in REGISTRATIONS), CODEC]
    device = _sources(HERE)
    headers = [path for folder in ("csrc", "metal") for path in sorted((ROOT / folder).rglob("*.h"))]
    texts = [path.read_bytes() for path in (*backend, *device, *headers, *HERE.rglob("*.h"), Path(__file__))]
    metal = _metal_sources.as_cpp()
    key = hashlib.sha256(b"\0".join([*texts, metal.encode(), torch.__version__.encode()])).hexdigest()[:16]
    folder = wheels.cache() / f"software-metal-{key}"
    libraries = folder / "libsoftware_metal.so", folder / "libtorch_mtl4_mps.so"
    if not all(library.is_file() for library in libraries):
        folder.mkdir(parents=True, exist_ok=True)
        metal_header.write(wheels.metal_cpp(), DECLARATIONS)
        (folder / "metal_sources.cpp").write_text(metal)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            sources = [*device, *backend, folder / "metal_sources.cpp"]
            objects = list(pool.map(lambda path: _compile(path, folder), sources))
        _link(objects[: len(device)], libraries[0], [])
        _link(objects[len(device) :], libraries[1], [str(libraries[0])])
    return libraries


def _sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".cpp", ".mm"))


def _gcc() -> Path:
    """The folder of gcc that has the Objective-C runtime and its headers."""
    return Path(_run(["gcc", "-print-libgcc-file-name"]).strip()).parent


def _compile(source: Path, folder: Path) -> Path:
    target = folder / f"{source.parent.name}_{source.name}.o"
    command = [*(["ccache"] if shutil.which("ccache") else []), CLANG, "-std=c++20", "-O1", "-g1", "-fPIC", "-w"]
    command += ["-DTORCH_TARGET_VERSION=0x020d000000000000"] if source.parent != HERE else []
    command += ["-DMTL4_ISA=baseline", "-DMTL4_ISA_BASELINE=1"] if source == CODEC else []
    command += [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'metal'}", *(f"-isystem{path}" for path in include_paths())]
    if source.suffix == ".mm":
        gnustep = _run(["gnustep-config", "--variable=GNUSTEP_SYSTEM_HEADERS"]).strip()
        command += ["-fobjc-runtime=gcc", "-fblocks", "-fexceptions", "-fconstant-string-class=NSConstantString"]
        command += ["-DGNUSTEP", "-DGNUSTEP_BASE_LIBRARY=1", "-DGNU_RUNTIME=1"]
        command += ["-include", str(HERE / "headers/prefix.h"), f"-I{HERE / 'headers'}"]
        command += [f"-isystem{gnustep}", f"-isystem{_gcc() / 'include'}", f"-isystem{DECLARATIONS}"]
    _run([*command, "-c", str(source), "-o", str(target)])
    if source.suffix == ".mm":
        # The personality that clang picks for this Objective-C runtime does not catch exceptions of C++.
        names = ("__gnu_objc_personality_v0", "__gxx_personality_v0")
        both = [f"{prefix}{names[0]}={prefix}{names[1]}" for prefix in ("", "DW.ref.")]
        _run(["objcopy", *(f"--redefine-sym={pair}" for pair in both), str(target)])
    return target


def _link(objects: list[Path], target: Path, libraries: list[str]) -> None:
    folders = [flag for path in library_paths() for flag in (f"-L{path}", f"-Wl,-rpath,{path}")]
    command = [CLANG, "-shared", *map(str, objects), "-o", str(target), *libraries, "-Wl,-rpath,$ORIGIN", *folders]
    command += ["-ltorch_cpu", "-lc10", "-ltorch", "-lgnustep-base", "-lobjc", "-lBlocksRuntime", "-ldl"]
    _run([*command, f"-L{_gcc()}"])


def _run(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{result.stderr}")
    return result.stdout
