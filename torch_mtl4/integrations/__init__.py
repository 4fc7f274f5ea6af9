"""Other libraries' shapes on this package's public functions."""

from torch_mtl4.integrations._on_import import when_imported

ATTENTION_NAME = "mtl4"


def _register_attention(modeling_utils) -> None:
    from torch_mtl4.integrations.attention import attention_forward

    modeling_utils.AttentionInterface.register(ATTENTION_NAME, attention_forward)


def _register_masks(masking_utils) -> None:
    from torch_mtl4.integrations.masks import create_mask

    masking_utils.AttentionMaskInterface.register(ATTENTION_NAME, create_mask)


def register() -> None:
    """Makes `attn_implementation="mtl4"` known to transformers, now or once it is imported."""
    when_imported("transformers.modeling_utils", _register_attention)
    when_imported("transformers.masking_utils", _register_masks)
