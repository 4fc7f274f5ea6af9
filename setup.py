"""Builds the extension: one library on torch's stable ABI, and the small pybind11 module beside it.

On macOS the library has the MPS backend as well (csrc/runtime, csrc/mps), with the Metal sources in it as text: the
Command Line Tools are enough, since Metal's compiler is a part of the system and works when the package runs.

Each file of csrc/cpu/kernels is compiled once per instruction set of the target architecture (see csrc/cpu/isa.h).
Objects that are newer than their source, its headers and this file are kept. TORCH_MTL4_WERROR=0 lets a compiler that
knows more warnings than ours build it all the same. TORCH_MTL4_SOFTWARE_AMX=1 builds the AMX kernels on functions in
place of AMX's instructions (csrc/cpu/kernels/amx_software.h).
"""

import os
import platform
import runpy
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pybind11
import torch.utils.cpp_extension
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HAS_MPS = sys.platform == "darwin"
if HAS_MPS:
    # torch for macOS is arm64 only and needs macOS 14, whatever the Python at hand was built for.
    os.environ.setdefault("MACOSX_DEPLOYMENT_TARGET", "14.0")
    os.environ.setdefault("ARCHFLAGS", "-arch arm64")

TORCH_TARGET_VERSION = "0x020d000000000000"  # 2.13: the oldest torch that the library loads into
TORCH_INCLUDES = [f"-isystem{path}" for path in torch.utils.cpp_extension.include_paths()]  # not ours to warn about
CXX_FLAGS = ["-std=c++20", "-O3", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wshadow"]
if os.environ.get("TORCH_MTL4_WERROR") != "0":
    CXX_FLAGS.append("-Werror")

# g++ 12 takes the undefined operands inside its own AVX-512 intrinsics for uninitialised ones (GCC bug 105593).
KERNEL_CXX_FLAGS = ["-ffp-contract=fast", "-Wno-unknown-warning-option"]
KERNEL_CXX_FLAGS += ["-Wno-uninitialized", "-Wno-maybe-uninitialized"]
AVX2 = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mprefer-vector-width=512"]
AVX512_BF16 = [*AVX512, "-mavx512bf16", "-mavx512vbmi"]
AMX = ["-mamx-tile", "-mamx-bf16"]
if os.environ.get("TORCH_MTL4_SOFTWARE_AMX") == "1":
    AMX = ["-DMTL4_SOFTWARE_AMX"]
    CXX_FLAGS += AMX  # the choice of the instruction set must know
ARM = {"baseline": [], "neon": []}
ISA_FLAGS = {
    "x86_64": {
        "baseline": [],
        "avx2": AVX2,
        "avx512": AVX512,
        "avx512_bf16": AVX512_BF16,
        "amx": [*AVX512_BF16, *AMX],
    },
    "arm64": ARM,
    "aarch64": ARM,
}


class BuildExt(build_ext):
    """Compiles all sources in parallel, and the kernels once per instruction set."""

    def jobs(self, ext):
        """What is compiled: (source, folder of the object, flags)."""
        jobs = [(source, "common", []) for source in ext.sources]
        if ext.name == "torch_mtl4._C":
            if HAS_MPS:
                jobs.append((self.metal_sources(), "common", []))
            # Smaller instruction sets first: of an inline function that several objects define, the linker keeps the
            # first, and a larger set's must not end up in the path of a machine that lacks it.
            for isa, flags in ISA_FLAGS.get(platform.machine(), {"baseline": []}).items():
                macros = [f"-DMTL4_ISA={isa}", f"-DMTL4_ISA_{isa.upper()}=1"]
                jobs += [(source, isa, [*KERNEL_CXX_FLAGS, *macros, *flags]) for source in sources("csrc/cpu/kernels")]
        return jobs

    def metal_sources(self):
        """The file that holds metal/ as text, written anew where that has changed."""
        path = Path(self.build_temp, "metal_sources.cpp")
        text = runpy.run_path("torch_mtl4/_metal_sources.py")["as_cpp"]()
        if not path.is_file() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(path)

    def build_extension(self, ext):
        if ".mm" not in self.compiler.src_extensions:
            self.compiler.src_extensions.append(".mm")
        jobs = self.jobs(ext)
        with ThreadPoolExecutor(self.parallel or os.cpu_count()) as pool:
            objects = list(pool.map(lambda job: self.compile(ext, *job), jobs))
        self.compiler.link_shared_object(
            objects,
            self.get_ext_fullpath(ext.name),
            libraries=self.get_libraries(ext),
            library_dirs=ext.library_dirs,
            export_symbols=self.get_export_symbols(ext),
            extra_postargs=ext.extra_link_args,
            build_temp=self.build_temp,
            target_lang="c++",
        )

    def compile(self, ext, source, folder, flags):
        folder = os.path.join(self.build_temp, ext.name, folder)
        obj = Path(self.compiler.object_filenames([source], output_dir=folder)[0])
        if self.force or not is_current(obj):
            self.compiler.compile(
                [source],
                output_dir=folder,
                macros=ext.define_macros,
                include_dirs=ext.include_dirs,
                extra_postargs=[*ext.extra_compile_args, *flags, "-MD", "-MF", str(obj.with_suffix(".d"))],
            )
        return str(obj)


def is_current(obj):
    """Whether an object is newer than all that it was made from, as the compiler listed it."""
    try:
        rule = obj.with_suffix(".d").read_text().replace("\\\n", " ")
        made_from = ["setup.py", *rule.split(": ", 1)[1].split()]
        return obj.stat().st_mtime > max(os.stat(path).st_mtime for path in made_from)
    except FileNotFoundError:
        return False


class BuildPy(build_py):
    """Adds metal/ to the package: the Metal sources are compiled on the user's machine, at run time."""

    def run(self):
        super().run()
        if Path("metal").is_dir() and not self.editable_mode:
            target = Path(self.build_lib, "torch_mtl4", "metal")
            shutil.copytree("metal", target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.md", ".*"))


def sources(*folders):
    return sorted(str(p) for folder in folders for end in ("cpp", "mm") for p in Path(folder).glob(f"*.{end}"))


setup(
    ext_modules=[
        Extension(
            "torch_mtl4._C",
            sources("csrc/ops", "csrc/cpu", "csrc/plan", *(["csrc/runtime", "csrc/mps"] if HAS_MPS else [])),
            include_dirs=["csrc", "metal"],
            define_macros=[("TORCH_TARGET_VERSION", TORCH_TARGET_VERSION)],
            extra_compile_args=[*CXX_FLAGS, *TORCH_INCLUDES],
            library_dirs=torch.utils.cpp_extension.library_paths(),
            libraries=["torch_cpu"],
            extra_link_args=["-framework", "Metal", "-framework", "Foundation"] if HAS_MPS else [],
            language="c++",
        ),
        Extension(
            "torch_mtl4._native",
            [*sources("csrc/python"), "csrc/cpu/isa.cpp"],
            include_dirs=["csrc"],
            extra_compile_args=[*CXX_FLAGS, f"-isystem{pybind11.get_include()}"],
            language="c++",
        ),
    ],
    cmdclass={"build_ext": BuildExt, "build_py": BuildPy},
)
