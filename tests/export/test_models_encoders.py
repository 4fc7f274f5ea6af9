"""Encoders, and a model of speech, exported whole: what the saved files compute beside transformers' own attention."""

import pytest

pytest.importorskip("coreai_torch", reason="Core AI is not installed: pip install torch_mtl4[coreai]")
pytest.importorskip("transformers")

from tests.export.whole_models import assert_like_the_model, exported
from tests.integrations.tiny_models import ENCODER_DECODERS, ENCODERS

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    "name, kernels, outputs",
    [("vit", 2, 2), ("bert", 2, 2), ("clip", 4, 4), ("whisper", 6, 2)],
)
def test_encoders(monkeypatch, tmp_path, name, kernels, outputs):
    family = (ENCODERS | ENCODER_DECODERS)[name]
    model, inputs = family.build(), family.inputs()
    if name in ENCODER_DECODERS:
        inputs["use_cache"] = False
    asset = exported(monkeypatch, model, inputs, tmp_path / f"{name}.aimodel")
    assert asset.report.kernel_calls == kernels
    assert model.config._attn_implementation == "sdpa"
    assert_like_the_model(asset, model, inputs, outputs=outputs)
