"""A language model of transformers with its key-value cache as buffers, which an asset keeps as states."""

import torch
from torch import Tensor, nn


class StaticCacheLM(nn.Module):
    """A causal language model as a function of the next tokens only.

    What it has seen is in buffers that every call changes: key_0, value_0, key_1, ... [B, Hkv, max_length, D], and
    length [1]. Exported, they are states; zeros are an empty cache. transformers' own cache counts in tensors of its
    layers, which torch.export takes for constants: here the layers of a call read one counter, which is a buffer.

    Args:
        model: a causal language model of transformers whose layers all attend to everything before them.
        max_length: tokens that the cache holds.
        batch_size: B.

    Raises:
        TypeError: model is no such model.
        ValueError: max_length or batch_size below 1.
        NotImplementedError: layers with a sliding window or a cache of another kind.
    """

    def __init__(self, model: nn.Module, max_length: int, batch_size: int = 1):
        super().__init__()
        config = getattr(model, "config", None)
        if not hasattr(config, "get_text_config") or not hasattr(model, "get_output_embeddings"):
            raise TypeError(
                f"StaticCacheLM: expected model a causal language model of transformers, got {type(model).__name__}"
            )
        for name, value in (("max_length", max_length), ("batch_size", batch_size)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"StaticCacheLM: expected {name} an int of at least 1, got {value!r}")
        self.model = model
        self.max_length = max_length
        text = config.get_text_config(decoder=True)
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        weight = model.get_output_embeddings().weight
        options = {"dtype": weight.dtype if weight.is_floating_point() else model.dtype, "device": weight.device}
        self._layers = len(self._empty_cache().layers)
        for i in range(self._layers):
            for name in ("key", "value"):
                cache = torch.zeros(batch_size, heads, max_length, head_dim, **options)
                self.register_buffer(f"{name}_{i}", cache, persistent=False)
        self.register_buffer("length", torch.zeros(1, dtype=torch.int32, device=weight.device), persistent=False)
        self.train(model.training)

    @torch.no_grad()
    def reset(self) -> None:
        """Empties the cache."""
        for buffer in self._buffers.values():
            buffer.zero_()

    def forward(self, input_ids: Tensor) -> Tensor:
        """The logits [B, L, vocabulary] of the tokens [B, L] that follow those of earlier calls."""
        cache, count = self._empty_cache(), input_ids.shape[1]
        for i, layer in enumerate(cache.layers):
            self._fill(layer, getattr(self, f"key_{i}"), getattr(self, f"value_{i}"))
        positions = self.length.long() + torch.arange(count, device=input_ids.device)
        options = {} if hasattr(cache.layers[0], "cumulative_length") else {"cache_position": positions}
        logits = self.model(
            input_ids=input_ids, position_ids=positions[None], past_key_values=cache, use_cache=True, **options
        ).logits
        self.length.add_(count)
        return logits

    def _empty_cache(self):
        from transformers.cache_utils import StaticCache, StaticLayer

        cache = StaticCache(config=self.model.config, max_cache_len=self.max_length)
        other = sorted({type(layer).__name__ for layer in cache.layers if type(layer) is not StaticLayer})
        if other:
            raise NotImplementedError(
                f"StaticCacheLM: expected layers that attend to all tokens, got {', '.join(other)}"
            )
        return cache

    def _fill(self, layer, keys: Tensor, values: Tensor) -> None:
        layer.keys, layer.values = keys, values
        layer.dtype, layer.device = keys.dtype, keys.device
        layer.is_initialized = True
        if hasattr(layer, "cumulative_length"):  # transformers 5
            layer.cumulative_length = self.length.long()[0].clone()
        layer.max_batch_size, layer.batch_size = keys.shape[0], keys.shape[0]
        layer.num_heads, layer.k_head_dim, layer.v_head_dim = keys.shape[1], keys.shape[3], values.shape[3]
        layer.head_dim = keys.shape[3]
