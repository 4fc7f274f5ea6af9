"""Sizes in the IR, and what all texts of our kernels have in common."""

import asyncio
import hashlib
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import sympy
import torch
from torch import fx
from torch.export import Dim

from tests.export import edge
from tests.export.conversion import Calls, TorchConverter, convert, get_decomp_table
from torch_mtl4 import msl, mxfp8_linear
from torch_mtl4._metal_sources import folder
from torch_mtl4.export.coreai import _apple, attention_kernels, mxfp8
from torch_mtl4.export.coreai.attention_kernels import Attention
from torch_mtl4.export.coreai.context import CAPS, Emission, EmittedKernel, Launch, Slot
from torch_mtl4.export.coreai.emit import Operand, Sizes, emit_kernel
from torch_mtl4.testing import exact_layer

NDArray = pytest.importorskip("coreai.runtime").NDArray


def all_kernels():
    """Of every struct in metal/*/coreai.h one."""
    half, float_ = torch.float16, torch.float32
    attentions = [
        Attention(half, 1, 2, 1, 40, 40, 64, 64, causal="lower_right"),
        Attention(half, 1, 2, 1, 40, 40, 64, 64, short=False, mask=torch.uint8),
        Attention(float_, 1, 2, 1, 40, 20, 64, 64, rows_first=(True, True, True)),
        Attention(half, 1, 2, 1, 2, 40, 64, 64, sinks=True),
        Attention(half, 1, 2, 1, 2, 4000, 64, 64, alibi=True),
    ]
    kernels = [kernel for a in attentions for kernel in attention_kernels.kernels_of(a, CAPS)]
    kernels += [mxfp8.linear_kernel(half, m, 64, k, True, CAPS) for m, k in ((4, 64), (40, 128), (40, 160))]
    kernels += [mxfp8.linear_kernel(float_, 40, 64, 128, False, CAPS)]
    kernels += [mxfp8.quantize_kernel(half, 64, "rceil", CAPS), mxfp8.dequantize_kernel(half, 33, CAPS)]
    return kernels


def test_all_structs_are_among_them():
    texts = [path.read_text() for path in folder().glob("*/coreai.h")]
    declared = {name for text in texts for name in re.findall(r"struct (CoreAi\w+)", text)}
    used = {re.search(r"using Kernel = \w+::(\w+)", kernel.text)[1] for kernel in all_kernels()}
    assert declared - used == {"CoreAiCall"}


def test_texts_are_ascii_and_name_no_path_of_this_machine():
    for kernel in all_kernels():
        assert kernel.text.isascii() and kernel.name.isidentifier()
        lines = [line for line in kernel.text.splitlines() if line.startswith("#line")]
        assert lines and not [line for line in lines if '"/' in line or ".." in line]
        assert "function_constant" not in kernel.text and 'include "' not in kernel.text


_NAMES = """
import hashlib
from tests.export.test_emit import all_kernels
print([(kernel.name, hashlib.sha256(kernel.text.encode()).hexdigest()) for kernel in all_kernels()])
"""


def test_texts_are_the_same_in_every_process():
    run = [sys.executable, "-W", "ignore", "-c", _NAMES]
    lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    own = [(kernel.name, hashlib.sha256(kernel.text.encode()).hexdigest()) for kernel in all_kernels()]
    assert lines[-1] == str(own)


@pytest.mark.parametrize("language", edge.LANGUAGES)
def test_texts_compile_together(language):
    kernels = all_kernels()
    text = "\n".join(kernel.text for kernel in kernels)
    library = msl.compile(text, name="all", tier=f"macos27:{language}", checked=False)
    assert {kernel.name for kernel in kernels} <= set(library.kernels)


def test_texts_pass_what_apple_s_compiler_checks_of_address_spaces():
    for kernel in all_kernels():
        for language in edge.LANGUAGES:
            result = msl.check(kernel.text, name=kernel.name, tier=f"macos27:{language}")
            assert not result.findings, (kernel.name, result.findings)


def expressions(n, k):
    """Sizes of all forms that grids and shapes may have."""
    return [
        n + 3, (n + 31) // 32 * 32, -(-n // 4) * k, n * n + 2 * n * k, n % 7 + 1, 100 - n, n * k // 3 + 1,
        torch.sym_max(n, 9) + torch.sym_min(k, 6), math.ceil(n / 8), math.floor(k / 2), (n - k) * (n + k) + 5000,
    ]  # fmt: skip


@pytest.fixture
def sizes_op():
    library = torch.library.Library("torch_mtl4_sizes", "DEF")
    library.define("sizes(Tensor x) -> Tensor")

    @torch.library.impl(library, "sizes", "CompositeExplicitAutograd")
    def on_tensors(x):
        return torch.tensor(expressions(*x.shape), dtype=torch.int32)

    torch.library.register_fake("torch_mtl4_sizes::sizes", lib=library)(
        lambda x: x.new_empty(len(expressions(1, 1)), dtype=torch.int32)
    )
    yield torch.ops.torch_mtl4_sizes.sizes
    library._destroy()


HALF = Dim("half", min=2, max=40)
DIMS = {
    "own symbols": (Dim("n", min=2, max=99), Dim("k", min=2, max=99), [(2, 3), (8, 9), (33, 5), (64, 64), (99, 7)]),
    "made of others": (2 * HALF, 2 * HALF + 1, [(4, 5), (8, 9), (34, 35), (64, 65)]),
}


@pytest.mark.parametrize("name", DIMS)
def test_sizes_become_ir_that_computes_them(sizes_op, tmp_path, name):
    """On Core AI's own interpreter, since no kernel is needed."""

    def lower(values_map, node, location):
        sizes = Sizes(values_map, node).vector(expressions(*node.args[0].meta["val"].shape))
        return _apple.ir.cast(sizes, dtype=np.int32)

    n, k, sizes = DIMS[name]
    program = torch.export.export(Calls(sizes_op), (torch.ones(4, 5),), dynamic_shapes=(({0: n, 1: k},),))
    program = program.run_decompositions(get_decomp_table())
    converter = TorchConverter(mode=TorchConverter.Mode.RELEASE)
    converter.register_torch_lowering("torch_mtl4_sizes::sizes.default")(lower)
    converter.add_exported_program(program, input_names=["x"], output_names=["y"])
    asset = converter.to_coreai().save_asset(tmp_path / "sizes.aimodel")

    async def run():
        async with asset.executable() as model:
            function = model.load_function("main")
            for n, k in sizes:
                result = await function({"x": NDArray(np.ones((n, k), np.float32))})
                assert result["y"].numpy().tolist() == expressions(n, k), (n, k)

    asyncio.run(run())


def test_a_size_that_no_input_has_is_an_error():
    message = r"export: expected sizes made of .* of inputs' sizes, got u0"
    with pytest.raises(NotImplementedError, match=message):
        Sizes({}, fx.Graph().placeholder("x"))._value(sympy.Symbol("u0"))


SLOTS = (Slot("x", torch.float32, 1),)


def kernel_of(text):
    return EmittedKernel("op", "k", text, SLOTS, SLOTS, torch.clone, lambda shapes: Launch((1,) * 3, (1,) * 3, shapes))


def test_two_texts_of_one_name_are_an_error():
    emission = Emission()
    first = emission.add(kernel_of("a"), "node", [(3,)])
    assert emission.add(kernel_of("a"), "other", [(4,)]) is first and len(emission.calls) == 2
    with pytest.raises(ValueError, match="export: expected one kernel of the name k, got two of different texts"):
        emission.add(kernel_of("b"), "node", [(3,)])


def test_operands_of_another_dtype_are_an_error():
    message = r"op: expected operands of k as \(dtype, rank\) .*float32, 1.* got .*float16, 2"
    with pytest.raises(ValueError, match=message):
        emit_kernel(Emission(), kernel_of("a"), [Operand(None, (3, 4), torch.float16)], None, "node")


def test_other_versions_are_an_error(monkeypatch):
    monkeypatch.setattr(_apple, "version", lambda package: "9.9")
    with pytest.raises(ImportError, match=r"expected coreai-core 1.0.0b3, got 9.9; .*'torch_mtl4\[coreai\]'"):
        _apple.check_versions()


def test_weights_in_another_dtype_are_an_error():
    weight, scale, _ = exact_layer(32, 64)
    layer = Calls(mxfp8_linear, weight=weight.view(torch.float8_e4m3fn), weight_scale=scale)
    with pytest.raises(
        NotImplementedError, match=r"export: expected b_weight stored as torch.uint8, since Core AI has no"
    ):
        convert(layer, [torch.ones(3, 64)])
