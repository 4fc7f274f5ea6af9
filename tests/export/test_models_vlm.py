"""A small vision-language model with linear layers of 4 bits, exported whole."""

import pytest
import torch

pytest.importorskip("coreai_torch", reason="Core AI is not installed: pip install torch_mtl4[coreai]")
transformers = pytest.importorskip("transformers")

from tests.export.whole_models import exported  # noqa: E402
from tests.integrations.tiny_models import _small, pixels, set_attention, spread, token_ids  # noqa: E402
from torch_mtl4 import testing  # noqa: E402
from torch_mtl4.nn import quantize_linears  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

IMAGE = 66
INPUTS = {
    "input_ids": torch.cat([torch.full((1, 16), IMAGE), token_ids(1, 6) - 1], 1),
    "pixel_values": pixels(1, 3, 32, 32),
    "use_cache": False,
}


def llava():
    config = transformers.LlavaConfig(
        text_config={**_small, "model_type": "llama", "eos_token_id": 2},
        vision_config={
            "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "image_size": 32, "patch_size": 8, "projection_dim": 32,
        },
        image_token_index=IMAGE, image_token_id=IMAGE, vision_feature_layer=-1,
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.LlavaForConditionalGeneration(config).eval()
    spread(model)
    return model


@torch.no_grad()
def test_vision_and_language_in_4_bits(monkeypatch, tmp_path):
    model = llava()
    asset = exported(monkeypatch, model, INPUTS, tmp_path / "llava.aimodel", weights="int4")
    linears = sum(row.what == "weights" and row.on_kernel for row in asset.report.modules)
    assert linears > 20 and asset.report.kernel_calls == linears + 4
    quantize_linears(model, format="int4")
    truth = set_attention(model, "eager")(**INPUTS).logits
    allowed = testing.MODEL_FLOOR_EPS[torch.float32] * torch.finfo(torch.float32).eps * truth.abs().max().item()
    testing.assert_close(asset.run(INPUTS).outputs["logits"], truth, allowed)
