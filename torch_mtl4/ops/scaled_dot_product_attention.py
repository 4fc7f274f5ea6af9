"""torch_mtl4.scaled_dot_product_attention: F.scaled_dot_product_attention's signature on flash_attention."""

from torch import Tensor

from torch_mtl4.ops.flash_attention import flash_attention


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention with the signature and the meaning of `torch.nn.functional.scaled_dot_product_attention`."""
    if dropout_p > 0:
        raise NotImplementedError(f"scaled_dot_product_attention: expected dropout_p 0, got {dropout_p}")
    return flash_attention(
        query, key, value, attn_mask=attn_mask, causal="upper_left" if is_causal else None, scale=scale
    )
