"""diffusers and timm models, patched and within enabled, against torch's own attention."""

import pytest
import torch

import torch_mtl4
from torch_mtl4 import testing


def compare(model, call):
    """Same outputs within enabled and patched; returns the report of the patched model."""
    model = model.eval()
    with torch.no_grad():
        expected = call(model)
        with torch_mtl4.enabled(strict=True):
            inside = call(model)
        assert torch_mtl4.report(model, reset=True).fused_calls > 0
        torch_mtl4.patch(model, strict=True)
        patched = call(model)
        report = torch_mtl4.report(model)
        torch_mtl4.unpatch(model)
        assert torch.equal(call(model), expected)
    floor = testing.MODEL_FLOOR_EPS[torch.float32] * torch.finfo(torch.float32).eps * expected.abs().max().item()
    for ours in (inside, patched):
        testing.assert_close(ours, expected, floor)
    assert not report.bypassing and report.unfused_calls == 0
    assert all(m.calls.fused == 1 for m in report.attention)
    return report


@pytest.fixture(scope="module")
def diffusers():
    return pytest.importorskip("diffusers", exc_type=ImportError)


def test_unet(diffusers):
    """Stable Diffusion's UNet: attention processors that call F.sdpa, self and cross."""
    torch.manual_seed(0)
    unet = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=24, attention_head_dim=4, norm_num_groups=8,
    )  # fmt: skip
    latents, text = torch.randn(2, 4, 8, 8), torch.randn(2, 5, 24)
    report = compare(unet, lambda m: m(latents, 7, encoder_hidden_states=text).sample)
    assert {m.module for m in report.attention} == {"Attention"} and report.fused_calls >= 8


def test_flux_transformer(diffusers):
    """The dispatcher's layout is [B, L, H, D]; the native backend ends in F.sdpa."""
    torch.manual_seed(0)
    model = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 4, 8],
    )  # fmt: skip
    inputs = {
        "hidden_states": torch.randn(1, 16, 4),
        "encoder_hidden_states": torch.randn(1, 6, 32),
        "pooled_projections": torch.randn(1, 32),
        "timestep": torch.tensor([1.0]),
        "img_ids": torch.zeros(16, 3),
        "txt_ids": torch.zeros(6, 3),
    }
    compare(model, lambda m: m(**inputs).sample)


def test_vae(diffusers):
    """Encode and decode are not the model's forward: the attention modules themselves are patched."""
    torch.manual_seed(0)
    vae = diffusers.AutoencoderKL(
        block_out_channels=(16,), down_block_types=("DownEncoderBlock2D",), up_block_types=("UpDecoderBlock2D",),
        norm_num_groups=8, sample_size=8,
    )  # fmt: skip
    image = torch.randn(1, 3, 8, 8)
    report = compare(vae, lambda m: m.decode(m.encode(image).latent_dist.mean).sample)
    assert report.fused_calls == 2


@pytest.mark.parametrize("name", ["vit", "swin"])
def test_timm(name):
    pytest.importorskip("timm", exc_type=ImportError)
    from timm.models.swin_transformer import SwinTransformer
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    if name == "vit":
        model = VisionTransformer(img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=4, num_classes=5)
    else:
        model = SwinTransformer(img_size=16, patch_size=2, embed_dim=16, depths=(2,), num_heads=(2,), window_size=4)
    image = torch.randn(2, 3, 16, 16)
    if name == "swin":
        # timm leaves it off here unless asked, and the modules then never call F.sdpa.
        assert {"fused_attn is False" in m.reason for m in torch_mtl4.report(model).bypassing} == {True}
        for module in model.modules():
            if hasattr(module, "fused_attn"):
                module.fused_attn = True
    report = compare(model, lambda m: m(image))
    assert report.fused_calls == 2
