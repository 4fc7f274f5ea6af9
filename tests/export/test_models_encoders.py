"""Encoders, and a model of speech, exported whole: what the saved files compute beside transformers' own attention."""

import pytest

pytest.importorskip("coreai_torch", reason="Core AI is not installed: pip install torch_mtl4[coreai]")
pytest.importorskip("transformers")

from tests.export.whole_models import assert_like_the_model, exported
from tests.integrations.tiny_models import ENCODERS

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name, kernels, outputs", [("vit", 2, 2), ("bert", 2, 2)])
def test_encoders(monkeypatch, tmp_path, name, kernels, outputs):
    family = ENCODERS[name]
    model, inputs = family.build(), family.inputs()
    asset = exported(monkeypatch, model, inputs, tmp_path / f"{name}.aimodel")
    assert asset.report.kernel_calls == kernels
    assert model.config._attn_implementation == "sdpa"
    assert_like_the_model(asset, model, inputs, outputs=outputs)
