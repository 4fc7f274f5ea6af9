"""Tiny models of many families, with random weights large enough that a wrong mask shows."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

import torch_mtl4
from torch_mtl4 import testing

transformers = pytest.importorskip("transformers")

VERSION_5 = int(transformers.__version__.split(".")[0]) >= 5
VOCAB = 67

_small = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}


@dataclass(frozen=True)
class Family:
    """How to build one tiny model.

    Attributes:
        model: class name in transformers.
        config: class name in transformers.
        options: of the config.
        inputs: what to run it on.
        in_double: whether it runs in float64; otherwise eager attention is the truth.
        skip: why it does not run with this version of transformers, or None.
    """

    model: str
    config: str
    options: dict
    inputs: Callable[[], dict] = lambda: {"input_ids": token_ids(2, 12)}
    in_double: bool = True
    skip: str | None = None

    # With seed 1, unlike 0, no activation of SAM3 stands so near a kink that rounding decides on the side.
    def build(self, seed: int = 1, **options) -> torch.nn.Module:
        if self.skip:
            pytest.skip(self.skip)
        if not hasattr(transformers, self.model):
            pytest.skip(f"transformers {transformers.__version__} has no {self.model}")
        config = getattr(transformers, self.config)(**{**self.options, **options})
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = getattr(transformers, self.model)(config).eval()
            spread(model)
        return model


@torch.no_grad()
def spread(model: torch.nn.Module) -> None:
    """Draws weights that keep activations near 1 and logits of attention far from 0."""
    for name, parameter in model.named_parameters():
        if parameter.ndim >= 2:
            parameter.normal_(0, 1.5 * parameter.shape[-1] ** -0.5)
        elif name.endswith("sinks"):
            parameter.normal_(0, 2)
        elif name.endswith("bias"):
            parameter.normal_(0, 0.1)


def token_ids(batch: int, length: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(2, VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed))


def pixels(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def left_padding(batch: int, length: int, pad: int = 4) -> torch.Tensor:
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, :pad] = 0
    return mask


DECODERS = {
    "llama": Family("LlamaForCausalLM", "LlamaConfig", _small),
    "qwen3": Family("Qwen3ForCausalLM", "Qwen3Config", {**_small, "head_dim": 16}),
    "mistral": Family("MistralForCausalLM", "MistralConfig", {**_small, "sliding_window": 4}),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {
            **_small,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 4,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": None,
        },
    ),
    "gemma3": Family(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {
            **_small,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "gpt_oss": Family(
        "GptOssForCausalLM",
        "GptOssConfig",
        {
            **_small,
            "head_dim": 16,
            "sliding_window": 4,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "deepseek_v3": Family(
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        {
            **_small,
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 12,
            "moe_intermediate_size": 16,
            "n_routed_experts": 4,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
        },
        in_double=VERSION_5,
    ),
}

MORE_DECODERS = {
    "gemma4": Family(
        "Gemma4ForCausalLM",
        "Gemma4TextConfig",
        {
            **_small,
            "num_hidden_layers": 4,
            "head_dim": 16,
            "global_head_dim": 32,
            "sliding_window": 4,
            "num_kv_shared_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": VOCAB,
        },
    ),
    "deepseek_v32": Family(
        "DeepseekV32ForCausalLM",
        "DeepseekV32Config",
        {
            **DECODERS["deepseek_v3"].options,
            "index_topk": 3,
            "index_n_heads": 2,
            "index_head_dim": 16,
        },
    ),
}

ENCODERS = {
    "bert": Family(
        "BertModel",
        "BertConfig",
        {**_small, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        lambda: {"input_ids": token_ids(2, 12), "attention_mask": left_padding(2, 12)},
        skip=None if VERSION_5 else "BERT of transformers 4 calls F.scaled_dot_product_attention: see test_patching",
    ),
    "vit": Family(
        "ViTModel",
        "ViTConfig",
        {**_small, "image_size": 16, "patch_size": 4},
        lambda: {"pixel_values": pixels(2, 3, 16, 16)},
    ),
    "clip": Family(
        "CLIPModel",
        "CLIPConfig",
        {
            "text_config": {**_small, "projection_dim": 16, "eos_token_id": 2},
            "vision_config": {**_small, "image_size": 16, "patch_size": 4, "projection_dim": 16},
            "projection_dim": 16,
        },
        lambda: {
            "input_ids": token_ids(2, 9),
            "attention_mask": left_padding(2, 9).flip(1),
            "pixel_values": pixels(2, 3, 16, 16),
        },
        in_double=VERSION_5,
    ),
    "swin": Family(
        "SwinModel",
        "SwinConfig",
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        lambda: {"pixel_values": pixels(1, 3, 32, 32)},
        skip=None if VERSION_5 else "Swin of transformers 4 computes its attention itself",
    ),
}

ENCODER_DECODERS = {
    "whisper": Family(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {
            "vocab_size": VOCAB,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "num_mel_bins": 8,
            "max_source_positions": 20,
            "max_target_positions": 64,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
        },
        lambda: {"input_features": pixels(2, 8, 40), "decoder_input_ids": token_ids(2, 7)},
    ),
    "t5": Family(
        "T5ForConditionalGeneration",
        "T5Config",
        {
            "vocab_size": VOCAB,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "dropout_rate": 0.0,
            "pad_token_id": 0,
            "eos_token_id": None,
            "decoder_start_token_id": 1,
        },
        lambda: {
            "input_ids": token_ids(2, 12),
            "attention_mask": left_padding(2, 12).flip(1),
            "decoder_input_ids": token_ids(2, 7, seed=2),
        },
        skip=None if VERSION_5 else "T5 of transformers 4 computes its attention itself",
    ),
}

_detr = {"hidden_size": 32, "num_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "dropout": 0.0}
SAM3 = Family(
    "Sam3Model",
    "Sam3Config",
    {
        "vision_config": {
            "backbone_config": {
                "model_type": "sam3_vit_model",
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 56,
                "pretrain_image_size": 28,
                "patch_size": 7,
                "window_size": 4,
                "global_attn_indexes": [1],
            },
            "fpn_hidden_size": 32,
            "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
        },
        "text_config": {
            **_small,
            "hidden_size": 32,
            "projection_dim": 32,
            "max_position_embeddings": 16,
            "eos_token_id": 2,
        },
        "geometry_encoder_config": {**_detr, "roi_size": 3},
        "detr_encoder_config": _detr,
        "detr_decoder_config": {**_detr, "num_queries": 6},
        "mask_decoder_config": {"hidden_size": 32, "num_upsampling_stages": 2, "num_attention_heads": 4},
    },
    lambda: {
        "pixel_values": pixels(1, 3, 56, 56),
        "input_ids": token_ids(1, 9),
        "attention_mask": left_padding(1, 9).flip(1),
    },
)

# Their vision or text towers compute attention on their own.
BYPASSING = {
    "bloom": Family(
        "BloomForCausalLM", "BloomConfig", {"vocab_size": VOCAB, "hidden_size": 32, "n_layer": 2, "n_head": 4}
    ),
    "deberta": Family(
        "DebertaV2Model",
        "DebertaV2Config",
        {**_small, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8},
    ),
    "gpt_neo": Family(
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        {
            "vocab_size": VOCAB,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
        },
    ),
    "falcon": Family(
        "FalconForCausalLM",
        "FalconConfig",
        {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    ),
}

# One tower looks attention up by name, another is built from a table of classes that does not know ours.
MIXED = {
    "sam": Family(
        "SamModel",
        "SamConfig",
        {
            "vision_config": {
                "hidden_size": 32,
                "output_channels": 16,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 32,
                "patch_size": 4,
                "window_size": 3,
                "global_attn_indexes": [1],
                "mlp_dim": 48,
                "num_pos_feats": 8,
            },
            "prompt_encoder_config": {"hidden_size": 16, "image_size": 32, "patch_size": 4, "mask_input_channels": 4},
            "mask_decoder_config": {
                "hidden_size": 16,
                "mlp_dim": 24,
                "num_attention_heads": 2,
                "iou_head_hidden_dim": 16,
            },
        },
        lambda: {"pixel_values": pixels(1, 3, 32, 32), "input_points": torch.tensor([[[[9.0, 12.0]]]])},
    ),
    "git": Family(
        "GitForCausalLM",
        "GitConfig",
        {
            **_small,
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "image_size": 16,
                "patch_size": 4,
            },
        },
        lambda: {"input_ids": token_ids(2, 8), "pixel_values": pixels(2, 3, 16, 16)},
    ),
}


def first_output(model: torch.nn.Module, inputs: dict) -> torch.Tensor:
    """The tensor to compare: logits, masks or the last hidden state."""
    outputs = model(**inputs)
    for name in ("logits", "pred_masks", "logits_per_image", "last_hidden_state"):
        if outputs.get(name) is not None:
            return outputs[name]
    raise KeyError(f"none of the known outputs in {list(outputs)}")


def set_attention(model: torch.nn.Module, name: str) -> torch.nn.Module:
    """Chooses an attention implementation by name where transformers lets one."""
    model.set_attn_implementation(name)
    return model


def calls(model: torch.nn.Module) -> int:
    return torch_mtl4.report(model).fused_calls


def assert_as_accurate(ours: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor, scale=1.0, precision=None) -> None:
    """The error against a float64 run is at most twice that of transformers' eager attention, plus a floor.

    The floor is relative to the largest value of the truth, or to scale if that is larger; precision is the dtype of
    the computation if it is not that of the outputs.
    """
    assert ours.dtype == eager.dtype and ours.shape == eager.shape
    assert ours.isfinite().all()
    ours_error, eager_error = (testing.error_of(t, truth) for t in (ours, eager))
    dtype, scale = precision or ours.dtype, max(float(scale), truth.abs().max().item())
    eps = torch.finfo(dtype).eps
    assert eager_error <= eps**0.5 * scale, f"eager and float64 do not compute the same: {eager_error}"
    allowed = testing.TWICE * eager_error + testing.MODEL_FLOOR_EPS[dtype] * eps * scale
    assert ours_error <= allowed, (ours_error, eager_error, scale)


def double_of(model: torch.nn.Module, inputs: dict) -> tuple[torch.nn.Module, dict]:
    """A float64 copy of a model, and its inputs."""
    inputs = {k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for k, v in inputs.items()}
    model = copy.deepcopy(model).double()
    if VERSION_5:
        model.set_experts_implementation("eager")
    # Eager attention turns the lowest float64 into -inf on its way through float32: NaN for rows of padding.
    return set_attention(model, "mtl4" if "attention_mask" in inputs else "eager"), inputs


def in_double(model: torch.nn.Module, inputs: dict) -> torch.Tensor:
    """The first output of a float64 copy of a model."""
    return first_output(*double_of(model, inputs))


def run_three(family: Family, inputs: dict | None = None, dtype: torch.dtype = torch.float32):
    """First outputs with our attention, with eager, and in float64; and the model, left with our attention."""
    model = family.build().to(dtype)
    inputs = family.inputs() if inputs is None else inputs
    inputs = {k: v.to(dtype) if torch.is_tensor(v) and v.is_floating_point() else v for k, v in inputs.items()}
    with torch.no_grad():
        eager = first_output(set_attention(model, "eager"), inputs)
        truth = in_double(model, inputs) if family.in_double else eager
        ours = first_output(set_attention(model, "mtl4"), inputs)
    return ours, eager, truth, model
