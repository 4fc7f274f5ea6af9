"""The public names: what exists, what is documented, whose signature is whose, and what an import costs."""

import inspect
import subprocess
import sys

import pytest
import torch

import torch_mtl4
from torch_mtl4 import reference
from torch_mtl4.reference import flash_attention as _flash_reference  # noqa: F401  makes reference.flash_attention
from torch_mtl4.reference import mxfp8 as _mxfp8_reference  # noqa: F401

OPS = {
    "flash_attention": "flash_attention",
    "mxfp8_dequantize": "mxfp8",
    "mxfp8_linear": "mxfp8",
    "mxfp8_quantize": "mxfp8",
}
FUNCTIONS = [*OPS, "scaled_dot_product_attention"]


def test_public_names():
    assert set(FUNCTIONS) <= set(torch_mtl4.__all__)
    assert torch_mtl4.__all__ == sorted(torch_mtl4.__all__)
    for name in torch_mtl4.__all__:
        assert hasattr(torch_mtl4, name), name


@pytest.mark.parametrize("name", [name for name in torch_mtl4.__all__ if callable(getattr(torch_mtl4, name))])
def test_every_public_callable_says_what_it_does(name):
    doc = inspect.getdoc(getattr(torch_mtl4, name))
    assert doc and doc.split("\n")[0].rstrip().endswith((".", ":")), name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_of_ops_are_complete(name):
    function = getattr(torch_mtl4, name)
    doc = inspect.getdoc(function)
    sections = [doc.find(f"\n{word}:") for word in ("Args", "Returns", "Raises", "Source")]
    assert -1 not in sections and sections == sorted(sections), f"{name}: Args, Returns, Raises, Source, in this order"
    arguments = doc[sections[0] : sections[1]]
    for parameter in inspect.signature(function).parameters:
        assert f"\n    {parameter}: " in arguments, f"{name}: {parameter} is not documented"
    for error in ("TypeError", "ValueError", "NotImplementedError"):
        assert f"\n    {error}: " in doc[sections[2] :], f"{name}: {error} is not documented"


@pytest.mark.parametrize("name", OPS)
def test_reference_has_the_signature_of_the_op(name):
    mirror = getattr(getattr(reference, OPS[name]), name)
    assert inspect.signature(mirror) == inspect.signature(getattr(torch_mtl4, name))


def test_sdpa_has_the_signature_of_pytorch():
    # F.scaled_dot_product_attention is a builtin without a signature; the schema behind it is the same one.
    schema = torch.ops.aten.scaled_dot_product_attention.default._schema
    ours = inspect.signature(torch_mtl4.scaled_dot_product_attention).parameters
    assert [argument.name for argument in schema.arguments] == list(ours)
    for argument in schema.arguments:
        mine = ours[argument.name]
        assert argument.kwarg_only == (mine.kind is inspect.Parameter.KEYWORD_ONLY), argument.name
        assert (mine.default is inspect.Parameter.empty) == (not argument.has_default_value()), argument.name
        if argument.has_default_value():
            assert mine.default == argument.default_value, argument.name


def test_raw_ops_are_those_of_the_schema():
    names = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("torch_mtl4::")}
    assert {f"torch_mtl4::{name}" for name in OPS} | {"torch_mtl4::flash_attention_backward"} <= names


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_import_loads_nothing_but_itself():
    # Modules are counted, not milliseconds; torch itself may or may not have brought numpy along.
    added = run(
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import torch_mtl4\n"
        "print(*(name for name in set(sys.modules) - before if name.split('.')[0] != 'torch_mtl4'))"
    )
    heavy = {"transformers", "numpy", "sympy", "diffusers", "peft", "accelerate"}
    assert not heavy & {name.split(".")[0] for name in added}
    assert not [name for name in added if name.startswith(("torch._dynamo", "torch._inductor", "torch.testing"))]
    assert len(added) < 20, added


def test_import_without_the_compiled_library_says_how_to_build_it():
    code = (
        "import importlib.util, sys\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'torch_mtl4._C' else real(name, *a)\n"
        "try:\n    import torch_mtl4\n"
        "except ImportError as error:\n    print(error)"
    )
    assert {"compiled", "library", "missing;"} <= set(run(code))
