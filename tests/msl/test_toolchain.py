"""Compilers, the cache, the reader of debug information, the runtime's own sources."""

import ctypes
import importlib.util
import os
import platform
import sys

import numpy as np
import pytest

from torch_mtl4 import msl
from torch_mtl4.msl import cache, compilers, native, toolchain
from torch_mtl4.msl.dwarf import FrameTable
from torch_mtl4.msl.dwarf.reader import Reader, elf_sections

from .conftest import KERNELS, python

SOURCE = """#include <metal_stdlib>
using namespace metal;
kernel void k(device float* o [[buffer(0)]]) { o[0] = VALUE; }
"""


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_MTL4_MSL_CACHE", str(tmp_path))
    toolchain.runtime_library.cache_clear()
    yield tmp_path
    toolchain.runtime_library.cache_clear()


@pytest.fixture
def fresh_compiler():
    compilers.find_compiler.cache_clear()
    yield
    compilers.find_compiler.cache_clear()


def built(value, checked=False, count=False, extra_flags=()):
    text = toolchain.preprocess("int k() { return VALUE; }", "k.cpp", [f"-DVALUE={value}"])
    return toolchain.compile_kernels(text, "k.cpp", [*toolchain.kernel_flags(checked, count), *extra_flags])


def test_equal_sources_are_built_once(own_cache, monkeypatch):
    calls = []
    monkeypatch.setattr(toolchain, "run", lambda *args: calls.append(args) or compilers.run(*args))
    first = built(1)
    again = len(calls)
    assert built(1) == first
    assert len(calls) == again + 1  # preprocessed only
    others = {built(2), built(1, checked=True), built(1, count=True), built(1, extra_flags=["-DX"])}
    assert len({first, *others}) == 5


def test_text_and_file_give_the_same_library_as_before(own_cache):
    text = SOURCE.replace("VALUE", "3")
    paths = {msl.compile(text, name="three.metal").path for _ in range(2)}
    assert len(paths) == 1
    assert msl.compile(text, name="three.metal", constants=None, tier="macos26.2").path not in paths


def test_interrupted_build_leaves_nothing(own_cache):
    with pytest.raises(msl.CompileError, match=r"k\.cpp:1:.*undeclared"):
        built("undeclared")
    assert not list(own_cache.glob("k_metal*"))
    assert not [path for path in own_cache.iterdir() if path.is_dir()]


def test_cache_is_pruned_by_age_of_use(own_cache):
    for number, name in enumerate(["old-1.so", "mid-2.so", "new-3.so"]):
        path = own_cache / name
        path.write_bytes(bytes(1000))
        os.utime(path, (number, number))
    cache.prune(limit=2500)
    assert sorted(p.name for p in own_cache.iterdir()) == ["mid-2.so", "new-3.so"]
    cache.publish("mid-2.so", None)  # used again
    cache.prune(limit=1500)
    assert [p.name for p in own_cache.iterdir()] == ["mid-2.so"]
    cache.prune(limit=0)
    assert (own_cache / "mid-2.so").exists()  # so young that somebody may be loading it


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-compiler", "expected the command of a clang, cannot run 'no-such-compiler'"),
        (f"{sys.executable} -c 1", "expected clang 19 or newer|expected the command of a clang"),
        ("g++", "expected clang 19 or newer, got 'g\\+\\+|expected the command of a clang"),
    ],
)
def test_wrong_compiler(fresh_compiler, monkeypatch, command, message):
    monkeypatch.setenv("TORCH_MTL4_MSL_CXX", command)
    with pytest.raises(msl.CompilerNotFoundError, match=f"TORCH_MTL4_MSL_CXX: {message}"):
        compilers.find_compiler()


def test_no_compiler_says_what_to_install(fresh_compiler, monkeypatch):
    monkeypatch.delenv("TORCH_MTL4_MSL_CXX", raising=False)
    monkeypatch.setattr(compilers.shutil, "which", lambda name: None)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(msl.CompilerNotFoundError, match=r"pip install ziglang.*clang-19.*TORCH_MTL4_MSL_CXX"):
        compilers.find_compiler()


@pytest.mark.parametrize(
    ("system", "machine", "message"),
    [
        ("Darwin", "arm64", "kernels run on Linux, got Darwin"),
        ("Linux", "aarch64", "kernels run on x86-64, got aarch64"),
    ],
)
def test_hosts_that_cannot_run_kernels(monkeypatch, system, machine, message):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(NotImplementedError, match=message):
        msl.compile(KERNELS / "a_basic.metal")
    assert msl.check(KERNELS / "a_basic.metal")


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="the ziglang wheel is not installed")
def test_ziglang_alone_builds_runs_and_checks(tmp_path):
    program = f"""
import numpy as np
from torch_mtl4 import msl
from torch_mtl4.msl.compilers import find_compiler
assert "zig" in find_compiler().version
for checked in (False, True):
    x, out = np.ones((2, 100), np.float32), np.zeros(2, np.float32)
    lib = msl.compile({str(KERNELS / "a_basic.metal")!r}, checked=checked)
    lib.kernel("row_sum").dispatch(2, 64, [x, msl.Output(out), 100])
    assert not lib.report and out.tolist() == [100, 100], (str(lib.report), out)
lib = msl.compile({str(KERNELS / "bugs.metal")!r})
x, out = np.zeros(128, np.float32), np.zeros(4, np.float32)
report = lib.kernel("missing_barrier").dispatch(1, 128, [x, out, 100]).report
assert "race" in report.kinds and report.findings[0].location.place.startswith("bugs.metal:"), str(report)
assert msl.check({str(KERNELS / "d_flash_attention.metal")!r})
"""
    result = python("-c", program, TORCH_MTL4_MSL_CXX="ziglang", TORCH_MTL4_MSL_CACHE=str(tmp_path))
    assert result.returncode == 0, result.stderr


def test_debug_information_names_the_line_and_the_calls_around_it():
    text = SOURCE.replace("kernel", "inline float twice(float x) {\n return x * x;\n}\nkernel", 1)
    lib = msl.compile(text.replace("VALUE", "twice(o[1])"), name="inlined.metal", checked=False)
    table = FrameTable(lib.path)
    begin, end = lib._info.image_begin, lib._info.image_end
    frames = {tuple(f"{path.rsplit('/', 1)[-1]}:{line}" for path, line in table.find(a)) for a in range(end - begin)}
    assert ("inlined.metal:4", "inlined.metal:6") in {frame[:2] for frame in frames}
    assert table.find(0) == []


def test_numbers_of_debug_information():
    reader = Reader(bytes([0xE5, 0x8E, 0x26, 0x7F, 0x80, 0x7F, 0x3F]))  # the examples of the DWARF standard, 7.6
    assert (reader.uleb(), reader.sleb(), reader.sleb(), reader.sleb()) == (624485, -1, -128, 63)
    assert Reader(b"name\0rest", 0).string() == "name"
    with pytest.raises(ValueError, match="expected a 64-bit ELF library"):
        elf_sections(b"MZ not an ELF file")


def test_runtime_compiles_without_warnings(tmp_path):
    compiler = compilers.find_compiler()
    flags = [*toolchain._RUNTIME_FLAGS, "-Wall", "-Wextra", "-Wshadow", "-Werror", "-fsyntax-only"]
    for source in sorted(toolchain.RUNTIME.glob("*.cpp")):
        result = compilers.run(compiler.host, [*flags, str(source)])
        assert result.returncode == 0, result.stderr


def test_structs_of_the_runtime_and_of_python_are_equally_large():
    names = {"Options": "msl::Options", "Stats": "msl::Stats", "TensorBinding": "MslTensorBinding"}
    asserts = [
        f"static_assert(sizeof({cpp}) == {ctypes.sizeof(getattr(native, python))});" for python, cpp in names.items()
    ]
    source = "\n".join([f'#include "{toolchain.RUNTIME / "state.h"}"', *asserts, ""])
    command = [*toolchain._RUNTIME_FLAGS, "-fsyntax-only", "-x", "c++", "-"]
    result = compilers.run(compilers.find_compiler().host, command, source)
    assert result.returncode == 0, result.stderr


def test_runs_repeat_exactly():
    lib = msl.compile(KERNELS / "bugs.metal")

    def once():
        x, out = np.arange(128, dtype=np.float32), np.zeros(512, np.float32)
        result = lib.kernel("good_divergence").dispatch(4, 128, [x, out, np.uint32(3)], shuffle=True, seed=7)
        return result.switches, result.simdgroup_operations, out.tobytes()

    assert once() == once()
