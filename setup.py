"""Builds the extension: one library on torch's stable ABI, and the small pybind11 module beside it.

Each file of csrc/cpu/kernels is compiled once per instruction set of the target architecture (see csrc/cpu/isa.h).
"""

import os
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pybind11
import torch.utils.cpp_extension
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

TORCH_TARGET_VERSION = "0x020d000000000000"  # 2.13: the oldest torch that the library loads into
TORCH_INCLUDES = [f"-isystem{path}" for path in torch.utils.cpp_extension.include_paths()]  # not ours to warn about
CXX_FLAGS = ["-std=c++20", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wshadow", "-Werror"]

AVX2 = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mprefer-vector-width=512"]
AVX512_BF16 = [*AVX512, "-mavx512bf16", "-mavx512vbmi"]
KERNEL_FLAGS = {
    "x86_64": {
        "baseline": [],
        "avx2": AVX2,
        "avx512": AVX512,
        "avx512_bf16": AVX512_BF16,
        "amx": [*AVX512_BF16, "-mamx-tile", "-mamx-bf16"],
    },
    "arm64": {"baseline": [], "neon": []},
    "aarch64": {"baseline": [], "neon": []},
}


class BuildExt(build_ext):
    """Compiles sources in parallel, and the kernels once per instruction set."""

    def build_extension(self, ext):
        if ext.name == "torch_mtl4._C":
            ext.extra_objects = self.compile_kernels(ext)
        super().build_extension(ext)

    def compile_kernels(self, ext):
        variants = KERNEL_FLAGS.get(platform.machine(), {"baseline": []})
        sources = sorted(str(p) for p in Path("csrc/cpu/kernels").glob("*.cpp"))

        def compile_variant(job):
            source, (isa, flags) = job
            return self.compiler.compile(
                [source],
                output_dir=os.path.join(self.build_temp, isa),
                macros=[*ext.define_macros, ("MTL4_ISA", isa), (f"MTL4_ISA_{isa.upper()}", "1")],
                include_dirs=ext.include_dirs,
                extra_postargs=[*ext.extra_compile_args, *flags],
            )

        jobs = [(source, variant) for source in sources for variant in variants.items()]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [obj for objs in pool.map(compile_variant, jobs) for obj in objs]


def sources(*folders):
    return sorted(str(p) for folder in folders for p in Path(folder).glob("*.cpp"))


setup(
    ext_modules=[
        Extension(
            "torch_mtl4._C",
            sources("csrc/ops", "csrc/cpu"),
            include_dirs=["csrc"],
            define_macros=[("TORCH_TARGET_VERSION", TORCH_TARGET_VERSION)],
            extra_compile_args=[*CXX_FLAGS, *TORCH_INCLUDES],
            library_dirs=torch.utils.cpp_extension.library_paths(),
            libraries=["torch_cpu"],
            depends=[str(p) for p in Path("csrc").rglob("*.h")],
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
    cmdclass={"build_ext": BuildExt},
)
