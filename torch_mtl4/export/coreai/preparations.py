"""What models of transformers need before torch.export can trace them.

Done to the copy that is exported, never to the model. Each is found by the name of a class, so nothing is imported.
"""

import torch
from torch import Tensor, nn


def prepare(model: nn.Module) -> list[str]:
    """Changes modules of a model that are known not to trace, in place; returns their names."""
    changed = []
    for name, module in model.named_modules():
        for kind, change in _CHANGES.items():
            if type(module).__name__ == kind and type(module).__module__.startswith("transformers."):
                change(module)
                changed.append(name)
    return changed


def _sam3(model: nn.Module) -> None:
    # The decoder reads the height and width of its features from a tensor: sizes that depend on data, to torch.export.
    encoder, decoder = model.detr_encoder, model.detr_decoder
    sizes = _Sizes(encoder)
    encoder._prepare_multilevel_features = sizes
    decoder._get_rpb_matrix = _WithKnownSize(decoder, sizes)
    decoder._get_coords = _coordinates


class _Sizes:
    """Sam3DetrEncoder._prepare_multilevel_features, which remembers the sizes of what it was given.

    An object and not a closure: a deep copy of the model takes it along.
    """

    def __init__(self, encoder: nn.Module):
        self.encoder = encoder
        self.sizes: list[tuple[int, int]] = []

    def __call__(self, features: list[Tensor], embeddings: list[Tensor]):
        self.sizes = [tuple(feature.shape[-2:]) for feature in features]
        return type(self.encoder)._prepare_multilevel_features(self.encoder, features, embeddings)


class _WithKnownSize:
    """Sam3DetrDecoder._get_rpb_matrix with the size as two numbers."""

    def __init__(self, decoder: nn.Module, sizes: _Sizes):
        self.decoder, self.sizes = decoder, sizes

    def __call__(self, boxes: Tensor, size: tuple[Tensor, Tensor]) -> Tensor:
        return type(self.decoder)._get_rpb_matrix(self.decoder, boxes, self.sizes.sizes[0])


def _coordinates(height: int, width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    # Sam3's own keeps its latest result, which would be one of the trace.
    return tuple(torch.arange(n, device=device, dtype=dtype) / n for n in (height, width))


_CHANGES = {"Sam3Model": _sam3}
