"""SAM3's image model exported whole: with stock attention torch.export cannot trace it, with ours it does."""

import pytest
import torch

pytest.importorskip("coreai_torch", reason="Core AI is not installed: pip install torch_mtl4[coreai]")
transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "Sam3Model"):
    pytest.skip("this version of transformers has no SAM3", allow_module_level=True)

from tests.export.whole_models import assert_like_the_model, exported  # noqa: E402
from tests.integrations.tiny_models import pixels, spread, token_ids  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

# Channels of the masks are no side of theirs: with both 32, coreai-torch 0.4.3 mixes them up in einsum.
_WIDTH = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 48}


def sam3():
    backbone = {
        **_WIDTH, "model_type": "sam3_vit_model", "num_hidden_layers": 4, "image_size": 112, "patch_size": 14,
        "window_size": 4, "global_attn_indexes": [1, 3], "pretrain_image_size": 112,
    }  # fmt: skip
    config = transformers.Sam3Config(
        vision_config={
            "backbone_config": backbone, "fpn_hidden_size": 64, "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]]
        },
        text_config={**_WIDTH, "vocab_size": 67, "projection_dim": 32, "num_hidden_layers": 2,
                     "max_position_embeddings": 16, "eos_token_id": 2},
        geometry_encoder_config={**_WIDTH, "num_layers": 1},
        detr_encoder_config={**_WIDTH, "num_layers": 2},
        detr_decoder_config={**_WIDTH, "num_layers": 2, "num_queries": 8},
        mask_decoder_config={"hidden_size": 64, "num_attention_heads": 4},
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.Sam3Model(config).eval()
    spread(model)
    return model


def test_image_model(monkeypatch, tmp_path):
    model = sam3()
    inputs = {"pixel_values": pixels(1, 3, 112, 112), "input_ids": token_ids(1, 9)}
    asset = exported(monkeypatch, model, inputs, tmp_path / "sam3.aimodel")
    assert asset.report.kernel_calls == 17
    names = {"pred_masks", "pred_boxes", "pred_logits", "presence_logits", "semantic_seg"}
    assert names <= set(asset.report.functions["main"]["outputs"])
    # What was prepared was a copy.
    assert "_get_rpb_matrix" not in vars(model.detr_decoder)
    assert_like_the_model(asset, model, inputs, outputs=len(asset.report.functions["main"]["outputs"]))
