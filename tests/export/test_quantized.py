"""torch_mtl4.export.coreai.quantized: models of coreai-opt on our modules, with the bytes that coreai-opt made."""

import copy

import pytest
import torch
from torch import nn

from torch_mtl4 import testing
from torch_mtl4.nn import MXFP8Linear, QuantizedLinear, quantize_linears

coreai_opt = pytest.importorskip("coreai_opt", reason="coreai-opt is missing")
pytest.importorskip("coreai_torch", reason="coreai-torch is missing")

from coreai_opt.quantization import (  # noqa: E402
    ModuleQuantizerConfig,
    QuantizationSpec,
    Quantizer,
    QuantizerConfig,
)
from coreai_opt.quantization.spec import (  # noqa: E402
    PerBlockGranularity,
    PerChannelGranularity,
    PerTensorGranularity,
)

from torch_mtl4.export.coreai.quantized import from_coreai_opt, is_quantized  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def mx(dtype):
    return {"dtype": dtype, "scale_dtype": torch.float8_e8m0fnu, "granularity": blocks(32)}


def blocks(size, axis=1):
    return PerBlockGranularity(axis=axis, block_size=size)


SPECS = {
    "mxfp8": mx(torch.float8_e4m3fn),
    "mxfp4": mx(torch.float4_e2m1fn_x2),
    "int4": {"dtype": torch.int4, "granularity": blocks(32)},
    "int4 rows": {"dtype": torch.int4, "granularity": PerChannelGranularity(axis=0)},
    "int8": {"dtype": torch.int8, "granularity": PerChannelGranularity(axis=0)},
    "int8 tensor": {"dtype": torch.int8, "granularity": PerTensorGranularity()},
}
STAY = {
    "e5m2": (mx(torch.float8_e5m2), "float8_e5m2 elements have no kernel of ours"),
    "asymmetric": (
        {"dtype": torch.uint4, "qscheme": "asymmetric", "granularity": blocks(32)},
        "uint4 elements with float32 scales have no kernel of ours",
    ),
    "small blocks": (
        {"dtype": torch.int4, "granularity": blocks(16)},
        "expected block a multiple of 32 for int4, or 0 for a row, got 16",
    ),
    "blocks of rows": (
        {"dtype": torch.int4, "granularity": blocks(32, axis=0)},
        "blocks within a row are wanted, its scales are [2, 128]",
    ),
    "fp8": (
        {"dtype": torch.float8_e4m3fn, "granularity": PerTensorGranularity()},
        "float8_e4m3fn elements with float32 scales have no kernel of ours",
    ),
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(128, 64), nn.Linear(64, 128, bias=False)

    def forward(self, x):
        return self.down(self.up(x).relu())


X = testing.randn(3, 128)


def quantizer(spec, model=None, mode="eager", activations=None, dtype=torch.float32):
    config = ModuleQuantizerConfig(
        op_input_spec=activations, op_output_spec=None, op_state_spec={"weight": QuantizationSpec(**spec)}
    )
    model = (model or Model()).to(dtype).eval()
    return Quantizer(model, QuantizerConfig(global_config=config, execution_mode=mode))


def finalized(spec, dtype=torch.float32, **options):
    made = quantizer(spec, dtype=dtype, **options)
    made.prepare((X.to(dtype),))
    return made.finalize(backend=coreai_opt.ExportBackend.CoreAI)


def stored(layer):
    """Data (as coreai-opt packs it) and scales of a finalized layer, copied."""
    p = layer.parametrizations.weight[0]
    data = getattr(p.quantized_data, "elem", p.quantized_data)
    return data.view(torch.uint8).clone(), p.scale.clone()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", SPECS)
def test_bytes_and_values_are_those_of_coreai_opt(name, dtype):
    model = finalized(SPECS[name], dtype)
    assert is_quantized(model)
    before = {layer: (*stored(getattr(model, layer)), getattr(model, layer).weight) for layer in ("up", "down")}
    expected = model(X.to(dtype))
    bias = model.up.bias
    assert [(c.name, c.reason) for c in from_coreai_opt(model)] == [("up", None), ("down", None)]
    assert not is_quantized(model)
    for layer, (data, scale, values) in before.items():
        module = getattr(model, layer)
        form = name.split()[0]
        assert type(module) is (MXFP8Linear if form == "mxfp8" else QuantizedLinear)
        if form == "int4":  # of which coreai-opt keeps one a byte
            data = (data[:, 0::2] & 15) | (data[:, 1::2] & 15) << 4
        testing.assert_equal(module.weight.data, data)
        if scale.dtype == torch.float8_e8m0fnu:
            scale = scale.view(torch.uint8)
        testing.assert_equal(module.weight_scale.data, scale.expand_as(module.weight_scale))
        testing.assert_equal(module.dequantized_weight(torch.float32).to(dtype), values, f"values of {layer}")
    assert model.up.bias is bias and model.down.bias is None
    testing.assert_close(model(X.to(dtype)), expected, 1e-6 if dtype == torch.float32 else 2e-3)


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "int4"])
def test_a_prepared_model_has_the_bytes_of_the_finalized_one(name):
    made = quantizer(SPECS[name])
    prepared = copy.deepcopy(made.prepare((X,)))
    final = made.finalize(backend=coreai_opt.ExportBackend.CoreAI)
    assert is_quantized(prepared)
    for model in (prepared, final):
        from_coreai_opt(model)
    for layer in ("up", "down"):
        testing.assert_equal(getattr(prepared, layer).weight.data, getattr(final, layer).weight.data)
        testing.assert_equal(getattr(prepared, layer).weight_scale.data, getattr(final, layer).weight_scale.data)


@pytest.mark.sweep  # coreai-opt takes long to prepare a graph
def test_graphs():
    model = finalized(SPECS["int8"], mode="graph")
    assert is_quantized(model)
    expected, weights = model(X), [model.up_weight_quantized, model.down_weight_quantized]
    assert [(c.name, c.reason) for c in from_coreai_opt(model)] == [("up_weight", None), ("down_weight", None)]
    for module, data in zip((model.up_weight_linear, model.down_weight_linear), weights, strict=True):
        testing.assert_equal(module.weight.data.view(torch.int8), data)
    testing.assert_close(model(X), expected, 1e-6)
    assert not is_quantized(model)


@pytest.mark.sweep
def test_a_graph_that_is_only_prepared():
    with pytest.raises(NotImplementedError, match="got one that is only prepared"):
        from_coreai_opt(quantizer(SPECS["int8"], mode="graph").prepare((X,)))


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name):
    spec, reason = STAY[name]
    model = finalized(spec)
    expected = model(X)
    conversions = from_coreai_opt(model)
    assert [c.name for c in conversions] == ["up", "down"] and conversions[0].reason == reason
    testing.assert_equal(model(X), expected)


def test_quantized_activations_stay():
    int8 = QuantizationSpec(dtype=torch.int8, granularity=PerTensorGranularity())
    conversions = from_coreai_opt(finalized(SPECS["int8"], activations={"*": int8}))
    assert {c.reason for c in conversions} == {"its activations are quantized too"}


def test_other_layers_stay():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(64, 64), nn.Linear(64, 64)

        def forward(self, ids):
            return self.head(self.embed(ids))

    ids = torch.arange(4)[None]
    made = quantizer(SPECS["int8"], Tokens())
    made.prepare((ids,))
    model = made.finalize(backend=coreai_opt.ExportBackend.CoreAI)
    reasons = {c.name: c.reason for c in from_coreai_opt(model)}
    assert reasons["head"] is None and reasons.get("embed", "") in ("", "only linear layers have a kernel of ours")


def test_a_model_without_coreai_opt():
    assert not is_quantized(Model()) and from_coreai_opt(Model()) == []


@pytest.mark.parametrize("name", ["mxfp4", "int4", "int8"])
def test_our_own_quantization_makes_the_same_bytes(name):
    theirs, ours = finalized(SPECS[name]), Model()
    from_coreai_opt(theirs)
    quantize_linears(ours, format=name)
    for layer in ("up", "down"):
        testing.assert_equal(getattr(ours, layer).weight.data, getattr(theirs, layer).weight.data)
        testing.assert_equal(getattr(ours, layer).weight_scale.data, getattr(theirs, layer).weight_scale.data)


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "int4", "int8"])
def test_bytes_are_those_in_core_ais_own_file(name, tmp_path):
    from coreai_torch import TorchConverter, get_decomp_table

    model = finalized(SPECS[name])
    converter = TorchConverter(mode=TorchConverter.Mode.RELEASE)
    program = torch.export.export(model, (X,)).run_decompositions(get_decomp_table())
    converter.add_exported_program(program, input_names=["x"], output_names=["y"])
    converter.to_coreai().save_asset(tmp_path / "native.aimodel")
    file = (tmp_path / "native.aimodel" / "main.mlirb").read_bytes()
    from_coreai_opt(model)
    for layer in (model.up, model.down):
        assert layer.weight.numpy().tobytes() in file
