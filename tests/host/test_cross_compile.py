"""The library for macOS, built here: it compiles without a warning, and every torch has what it wants."""

import re

import pytest

from . import cross, macho, metal_header, wheels

PRELUDE = (
    "#import <Metal/Metal.h>\n"
    "#include <torch/csrc/inductor/aoti_torch/c/shim_mps.h>\n"
    'extern "C" int aoti_torch_mps_no_such_thing();\n'
)


@pytest.fixture(scope="module")
def folder():
    """Where everything is built, with Metal's declarations."""
    pytest.importorskip("ziglang")
    folder = wheels.cache() / "cross"
    try:
        wheels.torch(wheels.TORCH_VERSIONS[0])
        metal_header.write(wheels.metal_cpp(), folder / "declarations")
    except wheels.UnavailableError as error:
        wheels.absent(error)
    return folder


@pytest.fixture(scope="module")
def objects(folder):
    return cross.compile_all(folder)


@pytest.fixture(scope="module")
def wanted(objects):
    return cross.wanted_symbols(objects)


@pytest.fixture(scope="module", params=wheels.TORCH_VERSIONS)
def exported(request):
    try:
        return cross.exported_by_torch(request.param)
    except wheels.UnavailableError as error:
        wheels.absent(error)


@pytest.fixture
def compiled(folder, tmp_path):
    """Compiles a function body, and returns what the object wants."""

    def compile_body(body):
        source = tmp_path / "snippet.mm"
        source.write_text(f"{PRELUDE}void f(id<MTLDevice> device, id<MTLComputeCommandEncoder> encoder) {{ {body} }}\n")
        target = tmp_path / "snippet.o"
        flags = ["-std=c++20", "-Wall"]
        cross.compile_one(str(source), target, flags, wheels.torch(wheels.TORCH_VERSIONS[0]), folder / "declarations")
        return macho.symbols(target).undefined

    return compile_body


def test_everything_compiles_without_a_word(folder, wanted):
    sources = {source for source, _, _ in cross.jobs(folder)}
    for part in ("ops", "cpu", "cpu/kernels", "plan", "runtime", "mps"):
        assert {str(path) for path in (cross.ROOT / "csrc" / part).glob("*.cpp")} <= sources
    assert {str(path) for path in (cross.ROOT / "csrc/runtime").glob("*.mm")} <= sources
    assert any(source.endswith("metal_sources.cpp") for source in sources)
    assert "_aoti_torch_mps_run_command_block" in wanted and "_OBJC_CLASS_$_MTLCompileOptions" in wanted


def test_every_torch_exports_what_the_library_wants(wanted, exported):
    of_torch = set(filter(cross.is_torchs, wanted))
    assert len(of_torch) > 50
    assert of_torch <= exported


@pytest.mark.parametrize("version", wheels.TORCH_VERSIONS)
def test_links_against_every_torch(objects, tmp_path, version):
    if cross.linker() is None:
        wheels.absent("there is no ld64.lld; Debian has it in lld-19")
    cross.link(objects, tmp_path / "_C.so", version)
    taken = macho.imports(tmp_path / "_C.so")
    assert "_aoti_torch_mps_run_command_block" in taken["@rpath/libtorch_cpu.dylib"]
    assert "_OBJC_CLASS_$_MTLCompileOptions" in next(s for name, s in taken.items() if name.endswith("/Metal"))


def test_nothing_of_torch_is_wanted_but_c(wanted):
    assert [s for s in wanted if re.match(r"__Z.*(2at|3c10|4c10d|5torch|6caffe2)\d", s)] == []


def test_every_torch_has_the_stream_that_is_looked_up(exported):
    source = (cross.ROOT / "csrc/runtime/torch_stream.mm").read_text()
    names = re.findall(r'"(_ZN2at3mps\w+)"', source)
    assert len(names) == 2
    assert {f"_{name}" for name in names} <= exported  # Mach-O puts one more underscore in front


def test_the_snippet_compiles(compiled):
    assert "_objc_msgSend" in {symbol.split("$")[0] for symbol in compiled("[encoder endEncoding]; (void)device;")}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("[encoder dispatchThreadgroup:MTLSizeMake(1, 1, 1)];", "instance method '-dispatchThreadgroup:' not found"),
        ("[encoder setBuffer:@\"text\" offset:0 atIndex:0];", "incompatible"),
        ("[encoder setBuffer:device offset:0 atIndex:0];", "cannot initialize a parameter of type 'id<MTLBuffer>'"),
        ("[device newLibraryWithSource:@\"\" options:nil error:(NSError*)nil];", "cannot initialize"),
        ("[encoder dispatchThreadgroups:1 threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];", "no viable conversion"),
        ("MTLCompileOptions* o = [MTLCompileOptions new]; o.languageVersion = MTLLanguageVersion9_9;", "undeclared"),
        ("[MTLNoSuchClass new];", "MTLNoSuchClass"),
        ("int unused;", "unused variable"),
    ],
)  # fmt: skip
def test_mistakes_are_not_compiled(compiled, body, said):
    with pytest.raises(cross.CompilerError, match=re.escape(said)):
        compiled(body)


def test_a_symbol_that_no_torch_has_is_seen(compiled, exported, tmp_path):
    wanted = compiled("aoti_torch_mps_no_such_thing(); aoti_torch_delete_tensor_object(nullptr);")
    assert set(filter(cross.is_torchs, wanted)) - exported == {"_aoti_torch_mps_no_such_thing"}
    if cross.linker():
        with pytest.raises(cross.CompilerError, match="undefined symbol: _aoti_torch_mps_no_such_thing"):
            cross.link([tmp_path / "snippet.o"], tmp_path / "_C.so", wheels.TORCH_VERSIONS[0])


def test_metals_enumerators_agree_with_pyobjc():
    """Two independent readings of Apple's headers; the one difference is a mistake in metal-cpp."""
    try:
        text, metadata = wheels.metal_cpp(), wheels.pyobjc_metadata().read_text()
    except wheels.UnavailableError as error:
        wheels.absent(error)
    theirs = {name: int(value) for name, value in re.findall(r"\$(MTL\w+)@(-?\d+)", metadata)}
    ours = metal_header.enumerators(text)
    common = ours.keys() & theirs.keys()
    assert len(common) > 700
    different = {name for name in common if ours[name] % 2**64 != theirs[name] % 2**64}
    assert different == {"MTLResourceStorageModeMemoryless"}
    used = ("MTLDataTypeBool", "MTLDataTypeInt", "MTLMathModeSafe", "MTLResourceStorageModeShared")
    assert set(used) <= common
