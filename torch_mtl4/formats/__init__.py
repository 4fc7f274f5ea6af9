"""Number formats: their tables and roundings, as the specifications state them, in plain PyTorch."""

from torch_mtl4.formats.block import FORMATS, BlockFormat
from torch_mtl4.formats.element import E2M1, E4M3, ElementFormat
from torch_mtl4.formats.mx import BLOCK_SIZE, ScalingMode, block_scale, e8m0_values

__all__ = [
    "BLOCK_SIZE",
    "E2M1",
    "E4M3",
    "FORMATS",
    "BlockFormat",
    "ElementFormat",
    "ScalingMode",
    "block_scale",
    "e8m0_values",
]
