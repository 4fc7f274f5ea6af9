"""torch_mtl4.export.mlpackage: what the saved package holds, what it says, and what it refuses."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_mtl4
from torch_mtl4.export import mlpackage

ct = pytest.importorskip("coremltools", reason="coremltools is missing")

pytestmark = pytest.mark.filterwarnings("ignore")


class Block(nn.Module):
    """Embedded tokens, attention and a linear layer."""

    def __init__(self, vocabulary=50, width=32, heads=4):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, tokens, keep=None, scale=None):
        x = self.embedding(tokens)
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        mask = None if keep is None else keep[:, None, None]
        x = self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(-2))
        return x if scale is None else {"hidden": x * scale, "length": x.norm(dim=-1).half()}


def tokens(*shape, vocabulary=50):
    return torch.randint(0, vocabulary, shape, generator=torch.Generator().manual_seed(1))


def spec_of(package):
    return ct.models.MLModel(str(package.path), skip_model_load=True).get_spec()


def operations(spec):
    (function,) = spec.mlProgram.functions.values()
    return list(function.block_specializations[function.opset].operations)


def kinds(spec):
    return [operation.type for operation in operations(spec) if operation.type != "const"]


def test_a_package_for_macos_26(tmp_path):
    package = mlpackage(Block(), (tokens(1, 7),), tmp_path / "block.mlpackage")
    spec = spec_of(package)
    assert spec.specificationVersion == 10
    (function,) = spec.mlProgram.functions
    assert function == "main" and spec.mlProgram.functions["main"].opset == "CoreML9"
    assert kinds(spec).count("scaled_dot_product_attention") == 1
    assert [feature.name for feature in spec.description.input] == ["tokens"]
    assert [feature.name for feature in spec.description.output] == ["output"]
    assert attention_dtype(package) == ct.proto.MIL_pb2.DataType.FLOAT16


def test_operands_are_float32_whatever_the_model_has(tmp_path):
    keep = torch.ones(1, 7, dtype=torch.bool)
    scale = torch.ones(1, dtype=torch.float16)
    package = mlpackage(Block(), {"scale": scale, "tokens": tokens(1, 7), "keep": keep}, tmp_path / "block.mlpackage")
    description = spec_of(package).description
    float32 = ct.proto.FeatureTypes_pb2.ArrayFeatureType.FLOAT32
    features = [*description.input, *description.output]
    assert [feature.type.multiArrayType.dataType for feature in features] == [float32] * 5
    assert [feature.name for feature in features] == ["scale", "tokens", "keep", "hidden", "length"]
    assert [operand.dtype for operand in package.inputs] == [torch.float16, torch.int64, torch.bool]
    assert [(o.shape, o.dtype) for o in package.outputs] == [((1, 7, 32), torch.float32), ((1, 7), torch.float16)]


def test_token_ids_never_pass_through_half_floats(tmp_path):
    package = mlpackage(Block(vocabulary=70000), (tokens(1, 7, vocabulary=70000),), tmp_path / "block.mlpackage")
    first = [
        operation
        for operation in operations(spec_of(package))
        if any(argument.name == "tokens" for value in operation.inputs.values() for argument in value.arguments)
    ]
    types = [output.type.tensorType.dataType for operation in first for output in operation.outputs]
    assert types == [ct.proto.MIL_pb2.DataType.INT32]


def test_sizes_that_vary(tmp_path):
    length = torch.export.Dim("length", min=2, max=64)
    package = mlpackage(Block(), (tokens(1, 7),), tmp_path / "block.mlpackage", dynamic_shapes={"tokens": {1: length}})
    (feature,) = spec_of(package).description.input
    ranges = [(r.lowerBound, r.upperBound) for r in feature.type.multiArrayType.shapeRange.sizeRanges]
    assert ranges == [(1, 1), (2, 64)]
    assert package.inputs[0].shape == (1, None) and package.inputs[0].row_pitch is None
    assert package.outputs[0].shape == (1, None, 32)


def attention_dtype(package):
    (attention,) = (o for o in operations(spec_of(package)) if o.type == "scaled_dot_product_attention")
    return attention.outputs[0].type.tensorType.dataType


def test_precision(tmp_path):
    single = mlpackage(Block(), (tokens(1, 7),), tmp_path / "block.mlpackage", precision="float32")
    assert attention_dtype(single) == ct.proto.MIL_pb2.DataType.FLOAT32


def test_the_text_has_the_command_and_the_pitch_of_rows(tmp_path):
    folder = tmp_path / "with space"
    folder.mkdir()
    package = mlpackage(Block(width=40), (tokens(1, 7),), folder / "block.mlpackage", output_names=["hidden"])
    text = str(package)
    assert (
        f"xcrun metal-package-builder -ml '{folder}/block.mlpackage' -o '{folder}/block.mtlpackage' "
        "--mtargetos macos26.0"
    ) in text
    # Rows of 7 and of 40 floats begin at multiples of 16 floats.
    assert "tokens float32 [1, 7], row pitch 16, cast from torch.int64 of the model" in text
    assert "hidden float32 [1, 7, 40], row pitch 48" in text
    assert "not run here" in text


def test_the_model_is_left_as_it_was(tmp_path):
    model = Block().train()
    model.out.eval()
    before, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    mlpackage(model, (tokens(1, 7),), tmp_path / "block.mlpackage")
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert list(model.state_dict()) == list(before)


def tiny(family, **options):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{family}Config")(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, **options,
    )  # fmt: skip
    return getattr(transformers, f"{family}Model")._from_config(config, attn_implementation="mtl4").eval()


def test_attention_of_ours_becomes_that_of_transformers(tmp_path):
    model = tiny("Gemma", use_cache=False)
    package = mlpackage(model, {"input_ids": tokens(1, 7)}, tmp_path / "model.mlpackage")
    assert kinds(spec_of(package)).count("softmax") == 1
    assert model.config._attn_implementation == "mtl4"
    assert package.outputs[0].name == "last_hidden_state"


def test_caches_are_no_outputs(tmp_path):
    failing(tmp_path, TypeError, "call the model with use_cache=False", tiny("Llama"))


def failing(tmp_path, error, text, model=None, inputs=None, path="m.mlpackage", **options):
    with pytest.raises(error) as caught:
        mlpackage(model or Block(), inputs if inputs is not None else (tokens(1, 7),), tmp_path / path, **options)
    assert text in str(caught.value)
    assert str(caught.value).startswith("mlpackage: ")
    assert not (tmp_path / path).exists()


def test_packed_weights_are_refused(tmp_path):
    model = Block()
    torch_mtl4.nn.quantize_linears(model)
    failing(tmp_path, NotImplementedError, "4 layers of packed bytes (query, key, value, ...)", model)
    torch_mtl4.nn.dequantize_linears(model)
    assert mlpackage(model, (tokens(1, 7),), tmp_path / "m.mlpackage").path.exists()


def test_custom_kernels_are_refused(tmp_path):
    class Fused(nn.Module):
        def forward(self, q):
            return torch_mtl4.flash_attention(q, q, q)

    text = "torch_mtl4::flash_attention: custom kernels cannot enter an ML program"
    failing(tmp_path, NotImplementedError, text, Fused(), (torch.ones(1, 2, 5, 16),))


def test_ops_that_coremltools_does_not_know(tmp_path):
    class Hypot(nn.Module):
        def forward(self, x):
            return torch.hypot(x, x)

    failing(tmp_path, NotImplementedError, "expected ops that coremltools converts", Hypot(), (torch.ones(3),))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return x + self.count


def test_state_is_refused(tmp_path):
    counter = Counter()
    failing(tmp_path, NotImplementedError, "writes to count", counter, (torch.ones(3),))


def test_bad_arguments(tmp_path):
    x = (tokens(1, 7),)
    failing(tmp_path, ValueError, "expected path that ends in .mlpackage", path="m.aimodel")
    failing(tmp_path, ValueError, "expected path in an existing folder", path="none/m.mlpackage")
    failing(tmp_path, ValueError, "expected precision 'float16' or 'float32', got 'int8'", precision="int8")
    failing(tmp_path, TypeError, "expected inputs that are tensors, got list for tokens", inputs=([1, 2],))
    failing(tmp_path, TypeError, "expected tokens of a dtype that float32 holds", inputs=(torch.ones(1).double(),))
    failing(tmp_path, ValueError, "expected tokens within 2**24", inputs=(torch.tensor([2**24 + 1]),))
    failing(tmp_path, ValueError, "expected input_names 1 distinct names, got ['a', 'b']", input_names=["a", "b"])
    failing(tmp_path, ValueError, "expected input_names that are identifiers, got 'a b'", input_names=["a b"])
    failing(tmp_path, ValueError, "expected input_names None", inputs={"tokens": x[0]}, input_names=["a"])
    failing(tmp_path, ValueError, "expected output_names 1 distinct names, got ['a', 'b']", output_names=["a", "b"])
    failing(tmp_path, ValueError, "got 'tokens' for both", output_names=["tokens"])
    failing(tmp_path, ValueError, "expected dynamic_shapes of ['tokens'], got ['y']", dynamic_shapes={"y": {}})
    unbounded = {"tokens": {1: torch.export.Dim("length")}}
    failing(tmp_path, ValueError, "with a bound max", dynamic_shapes=unbounded)
    failing(tmp_path, ValueError, "of torch.export.Dim, got 3", dynamic_shapes={"tokens": {1: 3}})


def test_without_coremltools_it_says_what_to_install():
    code = (
        "import sys\n"
        "sys.modules['coremltools'] = None\n"
        "import torch\nfrom torch_mtl4.export import mlpackage\n"
        "try:\n    mlpackage(torch.nn.Linear(2, 2), (torch.ones(1, 2),), 'm.mlpackage')\n"
        "except ImportError as error:\n    print(error)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 'mlpackage: coremltools is missing; `pip install "torch_mtl4[coreai]"`' in printed


@pytest.mark.parametrize("causal", [False, True])
def test_grouped_heads_are_repeated(tmp_path, causal):
    class Grouped(torch.nn.Module):
        def forward(self, q, k):
            return torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=causal, enable_gqa=True)

    package = mlpackage(Grouped(), (torch.randn(1, 8, 16, 32), torch.randn(1, 2, 16, 32)), tmp_path / "a.mlpackage")
    assert [operand.shape for operand in package.outputs] == [(1, 8, 16, 32)]


def test_grouped_heads_in_a_graph_are_those_of_pytorch():
    from torch_mtl4.export.stock import repeat_grouped_heads

    class Grouped(torch.nn.Module):
        def forward(self, q, k):
            return torch.nn.functional.scaled_dot_product_attention(q, k, k + 1, enable_gqa=True)

    inputs = torch.randn(2, 6, 5, 8), torch.randn(2, 3, 7, 8)
    program = torch.export.export(Grouped(), inputs)
    repeat_grouped_heads(program)
    assert "enable_gqa': True" not in str([node.kwargs for node in program.graph.nodes])
    torch.testing.assert_close(program.module()(*inputs), Grouped()(*inputs))
